// queue/operations/reread.ts: a slow read of the jobs that callers wait for, in case that no event ever tells of their end.
import type { JobRecord, Millis } from '../../job/job.js'
import type { Connection } from '../../store/connection.js'
import { Portion } from '../../store/looks.js'
import type { Stop } from '../../store/runtime.js'

/** How often; a wait is first read for after one to two times this. */
const EVERY: Millis = 15_000

/** After so many failed reads in a row the store is taken to be down, and the rest is left for the next round. */
const DOWN = 8

/** One who waits. */
export interface Waiter {
  /** The jobs to read. */
  jobs(): readonly string[]
  /** A job as it stands; undefined where it is gone. */
  see(record: JobRecord | undefined): void
}

/** All who wait on one queue of this process. One timer for all of them, and their reads travel together. */
export class Rereader {
  readonly #connection: Connection
  /** The round in which each began to wait. */
  readonly #waiters = new Map<Waiter, number>()
  #round = 0
  readonly #portion = new Portion()
  /** With how many others at most a job is read, after a read with more has failed. */
  #among = new Map<string, number>()
  /** Jobs that the last round did not come to. */
  #left: readonly string[] = []
  #failing = false
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

  /**
   * One round. A read that fails does not end it: its jobs are read again behind the others, in two halves, so that one that cannot
   * be read keeps no other from being read.
   */
  async #read(): Promise<void> {
    this.#reading = true
    const asked = this.#asked()
    const ids = [...new Set([...this.#left.filter((id) => asked.has(id)), ...asked.keys()])]
    this.#among = new Map(ids.flatMap((id) => (this.#among.has(id) ? [[id, this.#among.get(id)!]] : [])))
    let failure: { readonly error: unknown } | undefined
    let at = 0
    for (let inRow = 0; at < ids.length && inRow < DOWN;) {
      const some = this.#next(ids, at)
      at += some.length
      try {
        const records = await this.#connection.store.get(some)
        inRow = 0
        for (const [n, id] of some.entries()) {
          this.#among.delete(id)
          for (const waiter of asked.get(id)!) if (this.#waiters.has(waiter)) waiter.see(records[n])
        }
        this.#portion.adapt(records)
      } catch (error) {
        inRow++
        failure ??= { error }
        for (const id of some) this.#among.set(id, Math.ceil(some.length / 2))
        if (some.length > 1) ids.push(...some)
      }
    }
    this.#left = ids.slice(at)
    // Once, however many rounds it lasts.
    if (failure !== undefined && !this.#failing) this.#connection.outage.unread(failure.error)
    this.#failing = failure !== undefined
    this.#reading = false
  }

  /** The jobs to read, and who waits for each. */
  #asked(): ReadonlyMap<string, readonly Waiter[]> {
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
    return asked
  }

  /** The jobs of one read: no more than each of them may be read with. */
  #next(ids: readonly string[], from: number): readonly string[] {
    let most = this.#portion.size
    let to = from
    for (; to < ids.length; to++) {
      most = Math.min(most, this.#among.get(ids[to]!) ?? most)
      if (to - from >= most) break
    }
    return ids.slice(from, to)
  }
}
