// queue/rereading.ts: a slow read of the jobs that callers wait for, in case that no event ever tells of their end.
import type { JobRecord, Millis } from '../job/job.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'

/** How often; a wait is first read for after one to two times this. */
const EVERY: Millis = 15_000

/** Jobs read at a time: at first, and at most where they are small. */
const FEW = 16
const MANY = 256

/** Bytes that come back at a time, about: with more, fewer jobs are read the next time. */
const MOST_BYTES = 2 ** 20

/** One who waits. */
export interface Waiter {
  /** The jobs to read. */
  jobs(): readonly string[]
  /** A job as it stands; undefined where it is gone. */
  see(record: JobRecord | undefined): void
}

/** All who wait on one queue of this process. One timer for all of them, and their reads travel together. */
export class Rereading {
  readonly #connection: Connection
  /** The round in which each began to wait. */
  readonly #waiters = new Map<Waiter, number>()
  #round = 0
  #batch = FEW
  #reading = false
  #stopTimer: Stop | undefined

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** Reads for one who waits, until it is stopped. */
  add(waiter: Waiter): Stop {
    this.#waiters.set(waiter, this.#round)
    if (this.#stopTimer === undefined) this.#arm()
    return () => {
      this.#waiters.delete(waiter)
      if (this.#waiters.size > 0) return
      this.#stopTimer?.()
      this.#stopTimer = undefined
    }
  }

  #arm(): void {
    this.#stopTimer = this.#connection.runtime.timer(EVERY, () => {
      this.#arm()
      if (!this.#reading) void this.#read()
    })
  }

  async #read(): Promise<void> {
    this.#reading = true
    try {
      const round = this.#round++
      const asked = new Map<string, Waiter[]>()
      for (const [waiter, since] of this.#waiters) {
        if (since === round) continue // most waits are over before they have to be read for
        for (const id of waiter.jobs()) {
          const waiters = asked.get(id)
          if (waiters === undefined) asked.set(id, [waiter])
          else waiters.push(waiter)
        }
      }
      const ids = [...asked.keys()]
      for (let at = 0; at < ids.length;) {
        const some = ids.slice(at, at + this.#batch)
        const records = await this.#connection.store.get(some)
        for (const [n, id] of some.entries()) {
          for (const waiter of asked.get(id)!) if (this.#waiters.has(waiter)) waiter.see(records[n])
        }
        at += some.length
        this.#adapt(records)
      }
    } catch {
      // It is read again in the next round.
    } finally {
      this.#reading = false
    }
  }

  #adapt(records: readonly (JobRecord | undefined)[]): void {
    let bytes = 0
    for (const record of records) bytes += (record?.data?.length ?? 0) + (record?.result?.length ?? 0)
    if (bytes > MOST_BYTES) this.#batch = Math.max(1, Math.floor(this.#batch / 2))
    else if (bytes < MOST_BYTES / 4) this.#batch = Math.min(MANY, this.#batch * 2)
  }
}
