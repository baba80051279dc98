// worker/claims/hand-claims.ts: claims jobs for a caller that has a loop of its own, and waits for them. Does what a
// worker does besides: upkeep, its entry in the registry, webhook deliveries.
import { MillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { settle } from '../../job/lifecycle.js'
import { workerId } from '../../job/values/names.js'
import { JobOperations } from '../../queue/operations/job-operations.js'
import type { Queue } from '../../queue/queue.js'
import type { Deliveries } from '../../queue/settings/webhook.js'
import { declareRetention } from '../../queue/settings/retention.js'
import { connect } from '../../store/connection.js'
import type { Connection } from '../../store/connection.js'
import type { ClaimResult } from '../../store/batcher.js'
import { within } from '../../store/runtime.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice } from '../../store/store.js'
import { outside, refuseInside } from '../../store/transaction-context.js'
import { operationLog } from '../operation-log.js'
import { KeepLast } from '../../upkeep/retention/keep-last.js'
import { Upkeep } from '../../upkeep/upkeep.js'
import { jobForHandler } from '../attempt/payload.js'
import { endDeliveries } from '../close.js'
import { defaultReconnect } from '../options.js'
import { Registration, entryOf } from '../registry.js'
import { ClaimedJob } from './claimed-job.js'
import type { ClaimHost } from './host.js'
import { parseClaim } from './options.js'
import type { ClaimOptions, ClaimRequest } from './options.js'

/** How often a waiting claim is sent even without a hint that there is work, in case one was lost. */
const POLL_EVERY: Millis = 5_000
/** The longest time between two passes of upkeep, and how long other workers have to renew after an outage. */
const UPKEEP_EVERY: Millis = 30_000
const RENEW_EVERY: Millis = 10_000
/** The lease of webhook deliveries. */
const DELIVERY_LEASE: Millis = 30_000
/** How often a claimer by hand is known to write its entry in the registry, at least. It does so when it is called. */
const SEEN_EVERY: Millis = 60_000
/** The wait before a claim without an answer is sent again. */
const RESEND_AFTER: Millis = 250
/** How long a close waits for webhook deliveries, and for its own last writes. */
const CLOSE_TIMEOUTS = { timeout: 30_000, grace: 5_000 } as const

/** A call of `claim` that waits. */
interface Waiting {
  /** There may be work. */
  wake(): void
  /** Ends the call with an error. */
  end(error: unknown): void
}

/** The claims by hand of one queue object. Starts with the first claim, and ends with the queue object. */
export class HandClaims implements ClaimHost {
  readonly connection: Connection
  readonly operations: JobOperations
  readonly adder: ClaimHost['adder']
  readonly jobs: ClaimHost['jobs']
  readonly keepLast: KeepLast
  readonly #queue: Queue
  readonly #upkeep: Upkeep
  /** The worker id of claims that give none. */
  readonly #id: string
  readonly #registrations = new Map<string, { readonly entry: Registration; seenAt: Millis }>()
  readonly #waiting = new Set<Waiting>()
  /** Claims that have no answer yet, by worker. */
  readonly #unanswered = new Map<string, number>()
  /** Claims whose call has ended: what they took is being released. */
  readonly #releasing = new Set<Promise<void>>()
  #started: Promise<void> | undefined
  #unwatch: Stop | undefined
  #deliveries: Deliveries | undefined

  constructor(queue: Queue) {
    this.#queue = queue
    this.connection = connect(queue.store)
    this.jobs = queue.jobs
    this.adder = queue.adder
    this.operations = new JobOperations(this.connection, queue.jobs, queue.adder.maxBytes)
    this.#id = workerId(undefined, this.connection.runtime.id(), queue.store.identity)
    this.keepLast = new KeepLast(this.connection, (error) => queue.emitter.error(error))
    this.#upkeep = new Upkeep({
      connection: this.connection,
      queues: [queue.name],
      every: UPKEEP_EVERY,
      renewEvery: RENEW_EVERY,
      lease: 3 * RENEW_EVERY,
      reconnect: defaultReconnect,
      keepLast: this.keepLast,
      callbacks: queue.retention?.callbacks,
      leases: { ids: [] }, // a lease that is not renewed by hand expires like any other
      claimer: { isClaimingFor: (worker) => worker !== undefined && this.#unanswered.has(worker) },
      registry: { others: 0 },
      errors: { report: (error) => queue.emitter.error(error) },
      operationEnded: operationLog(queue.lines),
      reporter: { upkept: (job, changes) => this.connection.series.changed(job, changes) },
    })
  }

  /** Claims jobs; waits for the first if there is none. */
  async claim(options: ClaimOptions): Promise<ClaimedJob[]> {
    this.refuseClosed()
    const request = parseClaim(options, this.jobs, (name) => this.adder.definition(name))
    refuseInside(this.#queue.store, 'queue.claim()')
    if (request.signal?.aborted === true) throw request.signal.reason
    return outside(() => this.#claim(request))
  }

  refuseClosed(): void {
    if (!this.#queue.closed) return
    throw new MillraceError('QUEUE_CLOSED', `Queue '${this.#queue.name}' has been closed; make a new one.`)
  }

  /** Writes the entries of claimers that were not written for long. */
  seen(): void {
    const now = this.connection.runtime.elapsed()
    for (const each of this.#registrations.values()) {
      if (now - each.seenAt < SEEN_EVERY / 2) continue
      each.seenAt = now
      this.#report(each.entry.heartbeat())
    }
  }

  /** Ends waits, upkeep and deliveries. Jobs that were claimed and not settled are left to their leases. */
  async close(): Promise<void> {
    for (const each of [...this.#waiting]) {
      each.end(new MillraceError('QUEUE_CLOSED', 'The queue was closed while a claim waited; nothing was claimed.'))
    }
    await this.#started?.catch(() => {})
    const { runtime } = this.connection
    await within(runtime, CLOSE_TIMEOUTS.grace, Promise.all(this.#releasing))
    this.#unwatch?.()
    await this.#upkeep.stop()
    const undelivered = await endDeliveries(this.#deliveries, 'close', CLOSE_TIMEOUTS)
    const stopped = [...this.#registrations.values()].map(({ entry }) => entry.announce('stopped', 'worker-stopped'))
    await Promise.allSettled(stopped)
    this.operations.close()
    await this.connection.series.flush()
    if (undelivered !== undefined) throw undelivered
  }

  async #claim(request: ClaimRequest): Promise<ClaimedJob[]> {
    const { runtime } = this.connection
    const worker = request.worker === undefined ? this.#id : `${this.#queue.store.identity ?? ''}${request.worker}`
    const deadline = runtime.elapsed() + request.wait
    const call = new ClaimCall(this.connection, request.signal)
    this.#waiting.add(call)
    try {
      await call.orEnd(this.#start())
      this.#register(worker, request)
      for (let passed = false; ;) {
        call.sleeps()
        const { jobs, again } = await this.#ask(worker, request, call, deadline)
        const claimed = await this.#accept(jobs, request, call)
        if (claimed.length > 0) return claimed
        if (jobs.length > 0) continue // their data was refused, and there may be more
        if (!passed) {
          passed = true
          await call.orEnd(this.#upkeep.passNow()) // what is due may be claimable now
          continue
        }
        const left = deadline - runtime.elapsed()
        if (left <= 0) return []
        await call.sleep(Math.min(left, again ?? Infinity, POLL_EVERY))
      }
    } finally {
      this.#waiting.delete(call)
      call.over()
    }
  }

  /** Starts what a worker does besides running jobs; once, and again if that failed. */
  #start(): Promise<void> {
    this.#started ??= this.#begin().catch((error: unknown) => {
      this.#started = undefined
      throw error
    })
    return this.#started
  }

  async #begin(): Promise<void> {
    const { name, store, retention, webhooks, emitter } = this.#queue
    await this.connection.ready()
    if (retention !== undefined) await declareRetention(this.connection, name, retention)
    if (this.#queue.closed) return
    this.#unwatch = store.watch({}, (notice) => outside(() => this.#onNotice(notice)))
    this.#upkeep.start()
    this.#deliveries = webhooks?.deliver({
      queue: name,
      store,
      logger: false,
      lease: DELIVERY_LEASE,
      upkeepEvery: UPKEEP_EVERY,
      pollEvery: POLL_EVERY,
      reconnect: defaultReconnect,
      failed: (error) => emitter.error(error),
    })
  }

  #onNotice(notice: Notice): void {
    const { name } = this.#queue
    for (const { queue, at } of notice.due) this.#upkeep.expect(queue, at)
    if (notice.work.includes(name)) for (const each of this.#waiting) each.wake()
  }

  /**
   * Writes the entry of a claimer with its first claim, ahead of it. One whose id was given has no process in it: other
   * processes may use the same id, and the death of one of them would be taken for the death of all.
   */
  #register(worker: string, { handles, names }: ClaimRequest): void {
    if (this.#registrations.has(worker)) return this.seen()
    const { connection } = this
    const settings = { handles, names, renewEvery: SEEN_EVERY, concurrency: 0 }
    const { origin, ...own } = entryOf({ id: worker, queues: [this.#queue.name], connection, settings })
    const isOurs = worker === this.#id && origin !== undefined
    const entry = new Registration(connection, isOurs ? { ...own, origin } : own, { workerEvent: () => {} })
    this.#registrations.set(worker, { entry, seenAt: connection.runtime.elapsed() })
    this.#report(entry.announce('running', 'worker-started', connection.claims))
  }

  #report(write: Promise<void>): void {
    write.catch((error: unknown) => this.#queue.emitter.error(error)) // the next one repeats it
  }

  /**
   * Sends a claim. One without an answer may have taken jobs: it is sent again until their leases are over, even if the
   * call has ended by then, and what it took is released.
   */
  async #ask(worker: string, request: ClaimRequest, call: ClaimCall, deadline: Millis): Promise<ClaimResult> {
    const { claims, runtime } = this.connection
    const { handles, max, lease } = request
    const sentAt = runtime.elapsed()
    const unanswered = (error: unknown, over: boolean): Millis | undefined => {
      if (runtime.elapsed() >= deadline) call.end(error)
      return over ? undefined : RESEND_AFTER
    }
    this.#unanswered.set(worker, (this.#unanswered.get(worker) ?? 0) + 1)
    const asked = claims
      .claim({ worker, queues: [this.#queue.name], handles, want: max, ahead: 0 }, unanswered)
      .then(async (answer) => {
        const isLate = answer.jobs.length > 0 && runtime.elapsed() >= sentAt + lease
        return isLate ? { ...answer, jobs: await this.#renewed(answer.jobs, lease) } : answer
      })
      .finally(() => {
        const left = this.#unanswered.get(worker)! - 1
        if (left === 0) this.#unanswered.delete(worker)
        else this.#unanswered.set(worker, left)
      })
    try {
      return await call.orEnd(asked)
    } catch (error) {
      this.#releaseLater(asked)
      throw error
    }
  }

  #releaseLater(asked: Promise<ClaimResult>): void {
    const released = asked
      .then(({ jobs }) => this.#release(jobs))
      .catch(() => {}) // nothing was claimed
      .finally(() => this.#releasing.delete(released))
    this.#releasing.add(released)
  }

  /** The answer arrived after the leases expired: keeps the jobs that can still be renewed. */
  async #renewed(jobs: readonly JobRecord[], lease: Millis): Promise<readonly JobRecord[]> {
    const renewals = jobs.map(({ id, fence }) => ({ id, fence, lease, started: true }))
    const verdicts = await this.connection.renewals.renew(renewals)
    return jobs.filter((_, at) => verdicts[at]!.ok)
  }

  /** Validates the data of claimed jobs. Those whose data is refused fail for good, as in a worker. */
  async #accept(records: readonly JobRecord[], request: ClaimRequest, call: ClaimCall): Promise<ClaimedJob[]> {
    const { operations, connection, jobs } = this
    const handles = await Promise.all(
      records.map((record) => jobForHandler(operations, record, jobs?.[record.name], operations)),
    )
    const claimed: ClaimedJob[] = []
    const kept: JobRecord[] = []
    const refused: Promise<unknown>[] = []
    for (const [at, handle] of handles.entries()) {
      const record = records[at]!
      if (handle instanceof MillraceError) {
        const error = describeError(handle)
        const changes = settle(record, { kind: 'threw', error, retryable: false, retryIn: 0 })
        refused.push(
          connection.main.commit(changes).then((verdict) => verdict.ok && connection.series.changed(record, changes)),
        )
      } else {
        kept.push(record)
        claimed.push(new ClaimedJob(this, record, handle, request))
      }
    }
    await Promise.allSettled(refused) // one that is not written fails when its lease has expired
    if (!call.ended) return claimed
    await this.#release(kept)
    return call.orEnd(Promise.resolve([]))
  }

  /** Returns jobs to the queue. Those that cannot be returned are left to their leases. */
  async #release(jobs: readonly JobRecord[]): Promise<void> {
    const { main } = this.connection
    await Promise.allSettled(jobs.map((job) => main.commit(settle(job, { kind: 'interrupted' }))))
  }
}

/** One call of `claim`: its sleep between two claims, and its end by a signal or by the close of the queue. */
class ClaimCall implements Waiting {
  readonly #connection: Connection
  readonly #signal: AbortSignal | undefined
  readonly #ending: Promise<never>
  #reject: (error: unknown) => void = () => {}
  #woken = false
  #wake: () => void = () => {}
  ended = false
  readonly #abort = (): void => this.end(this.#signal!.reason)

  constructor(connection: Connection, signal: AbortSignal | undefined) {
    this.#connection = connection
    this.#signal = signal
    this.#ending = new Promise((_, reject) => (this.#reject = reject))
    this.#ending.catch(() => {}) // the call may be over before
    signal?.addEventListener('abort', this.#abort, { once: true })
  }

  /** From now on, a hint counts for the next sleep. */
  sleeps(): void {
    this.#woken = false
  }

  wake(): void {
    this.#woken = true
    this.#wake()
  }

  end(error: unknown): void {
    this.ended = true
    this.#reject(error)
  }

  /** The outcome of the work, or the error that the call ended with, if that comes first. */
  orEnd<T>(work: Promise<T>): Promise<T> {
    work.catch(() => {}) // it is not awaited any more once the call has ended
    return Promise.race([this.#ending, work])
  }

  /** Waits that long, or until there may be work. */
  async sleep(delay: Millis): Promise<void> {
    if (this.#woken) return
    let stop: Stop = () => {}
    const over = new Promise<void>((resolve) => {
      this.#wake = resolve
      stop = this.#connection.runtime.timer(delay, resolve)
    })
    try {
      await this.orEnd(over)
    } finally {
      stop()
    }
  }

  /** The call has returned. */
  over(): void {
    this.ended = true
    this.#signal?.removeEventListener('abort', this.#abort)
  }
}
