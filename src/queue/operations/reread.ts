// queue/operations/reread.ts: slowly polls the jobs that callers wait for, in case an event is missed.
import type { JobRecord, Millis } from '../../job/job.js'
import type { Connection } from '../../store/connection.js'
import { PageSize } from '../../store/shared-reads.js'
import { poll } from '../../store/runtime.js'
import type { Stop } from '../../store/runtime.js'

/** The polling interval. A wait is first polled after one to two intervals. */
const INTERVAL: Millis = 15_000

/** Failed reads in a row after which the store counts as down: the rest waits for the next round. */
const MAX_FAILURES = 8

/** A pending wait. */
export interface Waiter {
  /** The jobs to read. */
  jobs(): readonly string[]
  /** Receives a job's current record; undefined if it is gone. */
  receive(record: JobRecord | undefined): void
}

/** Polls for all waits on one queue in this process, with one timer and shared reads. */
export class Rereader {
  readonly #connection: Connection
  /** The round in which each wait began. */
  readonly #waiters = new Map<Waiter, number>()
  #round = 0
  readonly #portion = new PageSize()
  /** By job, the maximum size of the batch that reads it, after a larger one has failed. */
  #batchLimits = new Map<string, number>()
  /** Jobs that the last round did not read. */
  #left: readonly string[] = []
  #failing = false
  #reading = false
  #stopTimer: Stop | undefined

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** Polls for a wait until stopped. */
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
    const read = (): void => {
      this.#arm()
      if (!this.#reading) void this.#read()
    }
    this.#stopTimer = poll(this.#connection.runtime, INTERVAL, read, () => Infinity)
  }

  /**
   * Runs one round. A failed read does not end it: its jobs are read again after the others, in two halves, so that a
   * job that cannot be read does not block the others.
   */
  async #read(): Promise<void> {
    this.#reading = true
    const waitersById = this.#waitersById()
    const ids = [...new Set([...this.#left.filter((id) => waitersById.has(id)), ...waitersById.keys()])]
    this.#batchLimits = new Map(
      ids.flatMap((id) => (this.#batchLimits.has(id) ? [[id, this.#batchLimits.get(id)!]] : [])),
    )
    let failure: { readonly error: unknown } | undefined
    let at = 0
    for (let failures = 0; at < ids.length && failures < MAX_FAILURES;) {
      const batch = this.#nextBatch(ids, at)
      at += batch.length
      try {
        const records = await this.#connection.store.get(batch)
        failures = 0
        for (const [n, id] of batch.entries()) {
          this.#batchLimits.delete(id)
          for (const waiter of waitersById.get(id)!) if (this.#waiters.has(waiter)) waiter.receive(records[n])
        }
        this.#portion.adapt(records)
      } catch (error) {
        failures++
        failure ??= { error }
        for (const id of batch) this.#batchLimits.set(id, Math.ceil(batch.length / 2))
        if (batch.length > 1) ids.push(...batch)
      }
    }
    this.#left = ids.slice(at)
    // Reported once, however many rounds it lasts.
    if (failure !== undefined && !this.#failing) this.#connection.outage.unread(failure.error)
    this.#failing = failure !== undefined
    this.#reading = false
  }

  /** The jobs to read, each with its waiters. */
  #waitersById(): ReadonlyMap<string, readonly Waiter[]> {
    const round = this.#round++
    const waitersById = new Map<string, Waiter[]>()
    for (const [waiter, since] of this.#waiters) {
      if (since === round) continue // most waits end before their first poll
      for (const id of waiter.jobs()) {
        const waiters = waitersById.get(id)
        if (waiters === undefined) waitersById.set(id, [waiter])
        else waiters.push(waiter)
      }
    }
    return waitersById
  }

  /** The jobs of one read: no more than the batch limit of each of them. */
  #nextBatch(ids: readonly string[], from: number): readonly string[] {
    let limit = this.#portion.size
    let to = from
    for (; to < ids.length; to++) {
      limit = Math.min(limit, this.#batchLimits.get(ids[to]!) ?? limit)
      if (to - from >= limit) break
    }
    return ids.slice(from, to)
  }
}
