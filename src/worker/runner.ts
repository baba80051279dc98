// worker/runner.ts: the jobs that a worker holds: waiting for a slot, running, and on their way back to the store.
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
import type { Revoked, StoreEvent, StoreEventType, Verdict } from '../store/store.js'
import { Attempt } from './attempt/attempt.js'
import type { AttemptHost } from './attempt/attempt-host.js'
import { IndexedSet } from './indexed-set.js'
import type { Middleware, Why } from './attempt/context.js'
import type { Claimer } from './claimer.js'
import type { Leases } from './leases.js'
import type { NoteOutcome } from './attempt/pending-notes.js'
import type { Settings } from './options.js'
import { Settlements } from './settlements.js'
import { Slots } from './slots.js'

/** What the floor needs of its worker. */
export interface RunnerHost {
  readonly id: string
  readonly connection: Connection
  readonly settings: Settings
  readonly jobs: JobDefinitions | undefined
  readonly middleware: readonly Middleware[]
  readonly emitter: Emitter
  /** What adds to its queue with the queue's own defaults, if it was given one. */
  readonly adder: Adder | undefined
  /** The queue object in this process, which tells of lost leases as well. */
  readonly queueEmitter: Emitter | undefined
  /** Who measures what is run. */
  readonly telemetry: Telemetry | undefined
  leases(): Leases
  intake(): Claimer
  /** Whether the worker takes jobs at all. */
  takes(): boolean
  /** The store failed. */
  failed(error: unknown): void
}

/** A job leased ahead that still has no slot after this long is handed back. */
const AHEAD_TOO_LONG: Millis = 500

/** How long an attempt waits for an earlier one of its job to end. */
const OLD_HANDLER_PATIENCE: Millis = 1000

/** Where a worker's jobs are while they are its own. */
export class Runner {
  readonly slots: Slots
  readonly settlements: Settlements
  readonly #host: RunnerHost
  readonly #desk: JobOperations
  readonly #attempts: AttemptHost<Attempt>
  readonly #held = new IndexedSet<'heldAt', Attempt>('heldAt')
  /** Attempts at jobs of which an older handler is running here: they wait for a while for it to end. */
  readonly #successors = new Map<string, { readonly attempt: Attempt; readonly stop: Stop }>()
  /** What adds to queues that the worker knows by name alone. */
  readonly #adders = new Map<string, Adder>()
  #aheadTimer: Stop | undefined

  constructor(host: RunnerHost) {
    const { connection, settings, emitter } = host
    this.#host = host
    this.#desk = new JobOperations(connection, host.jobs, host.adder?.maxBytes ?? settings.maxDataBytes)
    this.slots = new Slots(settings.concurrency, {
      runtime: connection.runtime,
      abandonAfter: settings.abandonAfter,
      mayStart: (attempt) => this.#mayStart(attempt),
      vacated: (id) => this.#handlerEnded(id),
      gathered: () => this.#fill(),
      over: (_batch, left) => {
        this.slots.releaseBatch(left)
        this.#next()
      },
      stuck: ({ attempts }) => emitter.error(stuck(attempts[0]!.record), attempts[0]!.record),
    })
    this.settlements = new Settlements({
      connection,
      leases: () => host.leases(),
      emit: (event) => emitter.emit(event),
      wants: (type) => emitter.has(type),
      settled: (attempt) => this.#held.delete(attempt),
      lost: (attempt, ...why) => this.lost(attempt, ...why),
      failed: (error) => host.failed(error),
      caughtUp: () => host.intake().slotFree(),
    })
    this.#attempts = this.#attemptHost()
  }

  /** The attempts whose leases are this worker's to renew. */
  held(): Iterable<Attempt> {
    return this.#held.items
  }

  /** The ids of the jobs held here. */
  ids(): readonly string[] {
    return this.#held.items.map((attempt) => attempt.record.id)
  }

  /** Takes in claimed jobs; `asked` is when they were asked for. Of names that ran dry, the store has no more. */
  claimed(records: readonly JobRecord[], asked: Millis, ranDry: readonly (string | undefined)[]): void {
    const running = this.#runningAmong(records)
    for (const record of records) {
      const handler = this.#host.settings.handlerOf(record)!
      const attempt = new Attempt(this.#attempts, record, handler, asked + handler.lease)
      this.#held.add(attempt)
      if (running?.has(record.id) === true) this.#waitForOldHandler(attempt)
      else this.slots.push(attempt)
    }
    for (const name of ranDry) this.slots.ranDry(true, name)
    if (this.#host.takes()) this.#fill(true)
    else this.handBack()
  }

  /** Which of the jobs just claimed have a handler running here, whether or not it knows that it has lost them. */
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
   * A handler of ours that lost this very job has not ended yet. Never two copies by our own doing: the new attempt waits
   * for the old one to end, and if that takes long, goes back for the length of a lease, so that others can have it.
   */
  #waitForOldHandler(attempt: Attempt): void {
    const { id } = attempt.record
    const stop = this.#host.connection.runtime.timer(OLD_HANDLER_PATIENCE, () => {
      this.#successors.delete(id)
      if (attempt.lost === undefined) this.settlements.send(attempt, { kind: 'snoozed', for: attempt.handler.lease })
    })
    this.#successors.set(id, { attempt, stop })
  }

  /** A handler has ended, or was given up: a newer attempt at its job may begin. */
  #handlerEnded(id: string): void {
    if (this.#successors.size === 0) return
    const next = this.#successors.get(id)
    this.#successors.delete(id)
    next?.stop()
    if (next !== undefined && next.attempt.lost === undefined) this.slots.push(next.attempt)
  }

  /** Gives back what was leased and has not started. */
  handBack(): void {
    this.#aheadTimer?.()
    this.#aheadTimer = undefined
    for (const { attempt, stop } of this.#successors.values()) {
      stop()
      this.#return(attempt)
    }
    this.#successors.clear()
    for (const attempt of this.slots.takeGathering()) this.#return(attempt)
    this.#handBackAhead()
  }

  /** Gives back what was leased ahead. */
  #handBackAhead(): void {
    for (const attempt of this.slots.takeAhead()) this.#return(attempt)
  }

  #return(attempt: Attempt): void {
    if (attempt.lost === undefined) this.settlements.send(attempt, { kind: 'interrupted' })
  }

  /** A lease was taken away, by push. */
  revoked({ id, fence, reason, cancelReason }: Revoked): void {
    const attempt = this.#held.items.find(({ record }) => record.id === id && record.fence === fence)
    if (attempt !== undefined) this.lost(attempt, reason, cancelReason)
  }

  /** The job is somebody else's now. Its handler keeps its slot until it has ended. */
  lost(attempt: Attempt, ...[reason, cancelReason]: Why): void {
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

  /** Lets go of everything; what still runs is left to its lease. */
  clear(): void {
    this.#aheadTimer?.()
    for (const { stop } of this.#successors.values()) stop()
    for (const attempt of [...this.slots.running]) attempt.abandon()
    this.#held.clear()
    this.#desk.close()
  }

  /** The answer to an ask may come so late that its leases are over, and the jobs somebody else's. */
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
    if (!this.#host.takes()) return // what has not started goes back
    this.slots.fill(mayHaveMore)
    if (this.slots.ahead > 0 && this.#aheadTimer === undefined) this.#watchAhead(this.slots.first)
  }

  /** Handlers that became slow must not keep jobs from other workers that were leased while they were fast. */
  #watchAhead(first: Attempt | undefined): void {
    this.#aheadTimer = this.#host.connection.runtime.timer(AHEAD_TOO_LONG, () => {
      this.#aheadTimer = undefined
      if (this.slots.ahead === 0) return
      if (this.slots.first !== first) return this.#watchAhead(this.slots.first)
      this.#host.intake().pace.reset()
      this.#handBackAhead()
    })
  }

  #ended(attempt: Attempt, outcome: Outcome): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.#host.intake().pace.ended()
    this.settlements.send(attempt, outcome)
    this.#next()
  }

  /** As `#ended`, where the settlement is in already. */
  #committed(attempt: Attempt, outcome: Outcome): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.#host.intake().pace.ended()
    this.settlements.landed(attempt, outcome)
    this.#next()
  }

  #endedLost(attempt: Attempt): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.settlements.letGo(attempt)
    this.#next()
  }

  /** It was no longer ours, and its handler does not end: it goes on counting against limits until its lease is over. */
  #givenUp(attempt: Attempt): void {
    attempt.tracing?.handled()
    this.slots.release(attempt)
    this.#next()
  }

  #next(): void {
    this.#fill()
    this.#host.intake().slotFree()
  }

  #attemptHost(): AttemptHost<Attempt> {
    const { settings, middleware, jobs, emitter, telemetry } = this.#host
    return {
      desk: this.#desk,
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
        else this.#givenUp(attempt)
      },
      noted: (attempt, said, verdict) => this.#noted(attempt, said, verdict),
      misbehaved: ({ record }, what, cause) => {
        const message = `${what} failed for job ${record.id}: ${describeError(cause).message}`
        emitter.error(new MillraceError('CALLBACK_FAILED', message, { cause }), record)
      },
    }
  }

  /** The queue's own, with its defaults; one without any where the worker was given names of queues. */
  #adder(queue: string): Adder {
    const own = this.#host.adder
    if (own !== undefined) return own
    let adder = this.#adders.get(queue)
    if (adder === undefined) {
      adder = new Adder(queue, this.#desk, this.#host.jobs, {}, undefined)
      const { telemetry } = this.#host
      if (telemetry !== undefined) adder.trace = () => telemetry.trace()
      this.#adders.set(queue, adder)
    }
    return adder
  }

  #noted(attempt: Attempt, { progress, about, tells }: NoteOutcome, verdict: Verdict): void {
    const { emitter, connection } = this.#host
    if (!verdict.ok) return
    const at = connection.runtime.now()
    const tell = (type: StoreEventType, said: Partial<StoreEvent>): void => {
      if (emitter.has(type)) emitter.emit(publicEvent({ ...draft(attempt.record), type, at, ...said }))
    }
    if (progress !== undefined) tell('progress', { progress, ...(about !== undefined && { about }) })
    for (const each of tells ?? []) tell(each.type, { about: each.about })
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
