// worker/runner.ts: the jobs that a worker holds: waiting for a slot, running, or being settled.
import { MillraceError } from '../job/errors.js'
import { describeError } from '../job/failure.js'
import type { JobRecord, Millis } from '../job/job.js'
import type { Outcome } from '../job/lifecycle.js'
import { Adder } from '../queue/add.js'
import type { JobDefinition, JobDefinitions } from '../queue/define.js'
import { JobOperations } from '../queue/operations/job-operations.js'
import { publicEvent } from '../queue/events/events.js'
import type { Emitter } from '../queue/events/events.js'
import type { Telemetry } from '../queue/telemetry.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Revoked, Verdict } from '../store/store.js'
import type { StoreEvent, StoreEventType } from '../job/events.js'
import { Attempt } from './attempt/attempt.js'
import type { AttemptHost } from './attempt/attempt-host.js'
import { IndexedSet } from './indexed-set.js'
import type { Middleware, LostReason } from './attempt/context.js'
import type { Claimer } from './claimer.js'
import type { Leases } from './leases.js'
import type { PublishedNote } from './attempt/pending-notes.js'
import type { Settings } from './options.js'
import { Settlements } from './settlements.js'
import { Slots } from './slots.js'

/** What the runner needs of its worker. */
export interface RunnerHost {
  readonly id: string
  readonly connection: Connection
  readonly settings: Settings
  readonly jobs: JobDefinitions | undefined
  readonly middleware: readonly Middleware[]
  readonly emitter: Emitter
  /** Adds jobs to the worker's queue with the queue's defaults; undefined for a worker constructed with queue names. */
  readonly adder: Adder | undefined
  /** The emitter of the queue object in this process, which emits lost leases as well. */
  readonly queueEmitter: Emitter | undefined
  /** Measures what is run. */
  readonly telemetry: Telemetry | undefined
  leases(): Leases
  claimer(): Claimer
  /** Whether the worker is claiming jobs. */
  isClaiming(): boolean
  /** The store failed. */
  failed(error: unknown): void
}

/** A prefetched job that still has no slot after this long is returned. */
const MAX_PREFETCH_WAIT: Millis = 500

/** How long a new attempt waits for an older handler of its job to end. */
const OLD_HANDLER_WAIT: Millis = 1000

/** Holds a worker's jobs from their claim until they are settled, and connects slots, settlements and leases. */
export class Runner {
  readonly slots: Slots
  readonly settlements: Settlements
  readonly #host: RunnerHost
  readonly #operations: JobOperations
  readonly #attempts: AttemptHost<Attempt>
  readonly #held = new IndexedSet<'heldAt', Attempt>('heldAt')
  /** Attempts at jobs of which an older handler is still running here. They wait for it to end, for a limited time. */
  readonly #waitingForHandler = new Map<string, { readonly attempt: Attempt; readonly stop: Stop }>()
  /** Adders for queues of which the worker knows only the name. */
  readonly #adders = new Map<string, Adder>()
  #prefetchTimer: Stop | undefined

  constructor(host: RunnerHost) {
    const { connection, settings, emitter } = host
    this.#host = host
    this.#operations = new JobOperations(connection, host.jobs, host.adder?.maxBytes ?? settings.maxDataBytes)
    this.slots = new Slots(settings.concurrency, {
      runtime: connection.runtime,
      abandonAfter: settings.abandonAfter,
      mayStart: (attempt) => this.#mayStart(attempt),
      handlerEnded: (id) => this.#handlerEnded(id),
      gathered: () => this.#fill(),
      callEnded: (_batch, left) => {
        this.slots.releaseBatch(left)
        this.#next()
      },
      stuck: ({ attempts }) => emitter.error(stuck(attempts[0]!.record), attempts[0]!.record),
    })
    this.settlements = new Settlements({
      connection,
      leases: () => host.leases(),
      emit: (event) => emitter.emit(event),
      hasListeners: (type) => emitter.has(type),
      settled: (attempt) => this.#held.delete(attempt),
      lost: (attempt, ...why) => this.lost(attempt, ...why),
      failed: (error) => host.failed(error),
      caughtUp: () => host.claimer().slotFree(),
    })
    this.#attempts = this.#attemptHost()
  }

  /** The attempts whose leases this worker renews. */
  held(): Iterable<Attempt> {
    return this.#held.items
  }

  /** The ids of the jobs held here. */
  ids(): readonly string[] {
    return this.#held.items.map((attempt) => attempt.record.id)
  }

  /**
   * Accepts claimed jobs. `sentAt` is when the claim was sent. For the names in `ranDry`, the store has no more jobs.
   */
  claimed(records: readonly JobRecord[], sentAt: Millis, ranDry: readonly (string | undefined)[]): void {
    const running = this.#runningAmong(records)
    for (const record of records) {
      const handler = this.#host.settings.handlerOf(record)!
      const attempt = new Attempt(this.#attempts, record, handler, sentAt + handler.lease)
      this.#held.add(attempt)
      if (running?.has(record.id) === true) this.#waitForOldHandler(attempt)
      else this.slots.push(attempt)
    }
    for (const name of ranDry) this.slots.ranDry(true, name)
    if (this.#host.isClaiming()) this.#fill(true)
    else this.returnUnstarted()
  }

  /** Which of the claimed jobs still have a handler running here, even one that knows that its lease is lost. */
  #runningAmong(records: readonly JobRecord[]): ReadonlySet<string> | undefined {
    const { running } = this.slots
    if (records.length === 0 || running.length === 0) return undefined
    const ids = running.map(({ record }) => record.id)
    const [fewer, more] =
      ids.length < records.length ? [ids, records.map(({ id }) => id)] : [records.map(({ id }) => id), ids]
    const among = new Set(fewer)
    const both = more.filter((id) => among.has(id))
    return both.length === 0 ? undefined : new Set(both)
  }

  /**
   * An older handler that lost this job is still running here, and this worker never runs two copies of a job. The new
   * attempt waits for the old handler. If that takes too long, the job is snoozed for the length of a lease, so that
   * other workers can claim it.
   */
  #waitForOldHandler(attempt: Attempt): void {
    const { id } = attempt.record
    const stop = this.#host.connection.runtime.timer(OLD_HANDLER_WAIT, () => {
      this.#waitingForHandler.delete(id)
      if (attempt.lost === undefined) this.settlements.send(attempt, { kind: 'snoozed', for: attempt.handler.lease })
    })
    this.#waitingForHandler.set(id, { attempt, stop })
  }

  /** A handler has ended, or was abandoned: a newer attempt at its job may start. */
  #handlerEnded(id: string): void {
    if (this.#waitingForHandler.size === 0) return
    const next = this.#waitingForHandler.get(id)
    this.#waitingForHandler.delete(id)
    next?.stop()
    if (next !== undefined && next.attempt.lost === undefined) this.slots.push(next.attempt)
  }

  /** Returns leased jobs that have not started. */
  returnUnstarted(): void {
    this.#prefetchTimer?.()
    this.#prefetchTimer = undefined
    for (const { attempt, stop } of this.#waitingForHandler.values()) {
      stop()
      this.#return(attempt)
    }
    this.#waitingForHandler.clear()
    for (const attempt of this.slots.takeGathering()) this.#return(attempt)
    this.#returnPrefetched()
  }

  /** Returns prefetched jobs. */
  #returnPrefetched(): void {
    for (const attempt of this.slots.takePrefetched()) this.#return(attempt)
  }

  #return(attempt: Attempt): void {
    if (attempt.lost === undefined) this.settlements.send(attempt, { kind: 'interrupted' })
  }

  /** The store notified us of a revoked lease. */
  revoked({ id, fence, reason, cancelReason }: Revoked): void {
    const attempt = this.#held.items.find(({ record }) => record.id === id && record.fence === fence)
    if (attempt !== undefined) this.lost(attempt, reason, cancelReason)
  }

  /** The lease is lost. The handler keeps its slot until it has ended. */
  lost(attempt: Attempt, ...[reason, cancelReason]: LostReason): void {
    if (attempt.lost !== undefined) return
    attempt.lose(reason, cancelReason)
    attempt.tracing?.lost(reason)
    this.#held.delete(attempt)
    if (reason !== 'lease-lost') return
    const { id: worker, connection, emitter, queueEmitter } = this.#host
    const { id, name, queue } = attempt.record
    const event = { type: 'lease-lost', id, name, queue, at: connection.runtime.now(), worker } as const
    emitter.emit(event)
    queueEmitter?.emit(event)
  }

  /** Drops everything. Jobs whose handlers still run are left to their leases. */
  clear(): void {
    this.#prefetchTimer?.()
    for (const { stop } of this.#waitingForHandler.values()) stop()
    for (const attempt of [...this.slots.running]) attempt.abandon()
    this.#held.clear()
    this.#operations.close()
  }

  /** A claim's receipt may arrive so late that its leases have expired and other workers hold the jobs. */
  #mayStart(attempt: Attempt): boolean {
    const { connection, emitter, id: worker } = this.#host
    if (connection.runtime.elapsed() >= attempt.leaseEnds) this.lost(attempt, 'lease-lost')
    if (attempt.lost !== undefined) return false
    if (emitter.has('active')) {
      const { id, name, queue, attempt: number } = attempt.record
      emitter.emit({ type: 'active', id, name, queue, at: connection.runtime.now(), worker, attempt: number })
    }
    return true
  }

  #fill(mayHaveMore = false): void {
    if (!this.#host.isClaiming()) return // what has not started is returned
    this.slots.fill(mayHaveMore)
    if (this.slots.ahead > 0 && this.#prefetchTimer === undefined) this.#watchPrefetch(this.slots.first)
  }

  /** Returns prefetched jobs when handlers slow down, so that other workers can take them. */
  #watchPrefetch(first: Attempt | undefined): void {
    this.#prefetchTimer = this.#host.connection.runtime.timer(MAX_PREFETCH_WAIT, () => {
      this.#prefetchTimer = undefined
      if (this.slots.ahead === 0) return
      if (this.slots.first !== first) return this.#watchPrefetch(this.slots.first)
      this.#host.claimer().prefetch.reset()
      this.#returnPrefetched()
    })
  }

  #ended(attempt: Attempt, outcome: Outcome): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.#host.claimer().prefetch.ended()
    this.settlements.send(attempt, outcome)
    this.#next()
  }

  /** Like `#ended`, where the settlement is committed already. */
  #committed(attempt: Attempt, outcome: Outcome): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.#host.claimer().prefetch.ended()
    this.settlements.landed(attempt, outcome)
    this.#next()
  }

  #endedLost(attempt: Attempt): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.settlements.releaseLease(attempt)
    this.#next()
  }

  /** The lease is lost and the handler does not end. The job counts against limits until its lease expires. */
  #abandoned(attempt: Attempt): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.#next()
  }

  #next(): void {
    this.#fill()
    this.#host.claimer().slotFree()
  }

  #attemptHost(): AttemptHost<Attempt> {
    const { settings, middleware, jobs, emitter, telemetry } = this.#host
    return {
      operations: this.#operations,
      telemetry,
      settings,
      middleware,
      definitionOf: (name): JobDefinition | undefined => jobs?.[name],
      adder: (queue) => this.#adder(queue),
      leases: () => this.#host.leases(),
      lost: (attempt, ...why) => this.lost(attempt, ...why),
      committed: (attempt, outcome) => this.#committed(attempt, outcome),
      ended: (attempt, outcome) => this.#ended(attempt, outcome),
      endedLost: (attempt) => this.#endedLost(attempt),
      stuck: (attempt, outcome) => {
        emitter.error(stuck(attempt.record), attempt.record)
        if (attempt.lost === undefined) this.#ended(attempt, outcome)
        else this.#abandoned(attempt)
      },
      noted: (attempt, note, verdict) => this.#noted(attempt, note, verdict),
      countNotes: (bytes) => this.settlements.countNotes(bytes),
      callbackFailed: ({ record }, what, cause) => {
        const message = `${what} failed for job ${record.id}: ${describeError(cause).message}`
        emitter.error(new MillraceError('CALLBACK_FAILED', message, { cause }), record)
      },
    }
  }

  /** The queue's own adder, with its defaults; for a worker constructed with queue names, one without defaults. */
  #adder(queue: string): Adder {
    const own = this.#host.adder
    if (own !== undefined) return own
    let adder = this.#adders.get(queue)
    if (adder === undefined) {
      adder = new Adder(queue, this.#operations, this.#host.jobs, {}, undefined)
      const { telemetry } = this.#host
      if (telemetry !== undefined) adder.trace = () => telemetry.trace()
      this.#adders.set(queue, adder)
    }
    return adder
  }

  #noted(attempt: Attempt, { progress, about, tells }: PublishedNote, verdict: Verdict): void {
    const { emitter, connection } = this.#host
    if (!verdict.ok) return
    const at = connection.runtime.now()
    const publish = (type: StoreEventType, fields: Partial<StoreEvent>): void => {
      if (emitter.has(type)) emitter.emit(publicEvent({ ...draft(attempt.record), type, at, ...fields }))
    }
    if (progress !== undefined) publish('progress', { progress, ...(about !== undefined && { about }) })
    for (const each of tells ?? []) publish(each.type, { about: each.about })
  }
}

function draft({ id, name, queue }: JobRecord): Pick<StoreEvent, 'cursor' | 'id' | 'name' | 'queue'> {
  return { cursor: '', id, name, queue }
}

function stuck({ id, name }: JobRecord): MillraceError {
  return new MillraceError(
    'HANDLER_STUCK',
    `The handler of job ${id} ('${name}') did not end after its timeout; its slot was given up. Make it obey ctx.signal.`,
  )
}
