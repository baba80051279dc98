// features/webhooks/deliver.ts: the delivery worker, which runs beside a user's worker and sends its queue's webhooks.
import type { Change } from '../../job/change.js'
import { storeErrors } from '../../job/errors/catalogue.js'
import { parseDuration } from '../../job/values/duration.js'
import { MillraceError, isInstance, isMillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { backoffDelay } from '../../job/retry.js'
import { DELIVERIES, noteDelivery, wasAccepted } from '../../job/webhooks.js'
import type { Delivered, Delivery } from '../../job/webhooks.js'
import { safeLogger } from '../../queue/events/events.js'
import type { Logger } from '../../queue/events/events.js'
import type { Job } from '../../queue/job.js'
import { decideAndCommit } from '../../queue/operations/decide.js'
import { RESERVED } from '../../queue/queue-types.js'
import { Queue } from '../../queue/queue.js'
import type { QueueOptions } from '../../queue/queue-types.js'
import { sessionFor } from '../../store/session.js'
import type { Session } from '../../store/session.js'
import { webhookId } from '../../queue/settings/webhook.js'
import type { Deliveries, DeliveryOwner } from '../../queue/settings/webhook.js'
import { connect } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { Runtime } from '../../store/runtime.js'
import type { JobContext } from '../../worker/attempt/context.js'
import { Worker } from '../../worker/worker.js'
import { Breaker } from './breaker.js'
import type { BreakerSettings } from './breaker.js'
import { Poster } from './post.js'
import type { PostResponse, PostingSettings } from './post.js'
import { sign } from './sign.js'

/** Settings of deliveries. */
export interface DeliverySettings extends PostingSettings {
  readonly keys: readonly Buffer[]
  readonly concurrency: number
  readonly breaker: BreakerSettings | undefined
}

/** The longest wait that a receiver can request. */
const MAX_RETRY_AFTER: Millis = 3_600_000

/** Maximum number of hosts that are warned about: customers may name any number. */
const MAX_WARNED = 1000

/** A failed delivery attempt. */
class DeliveryFailed extends MillraceError {
  /** Whether no further attempt is made. */
  readonly final: boolean
  readonly retryIn: Millis

  constructor(cause: MillraceError, final: boolean, retryIn: Millis) {
    super(cause.code, cause.message)
    this.final = final
    this.retryIn = retryIn
  }
}

/** Starts to send the deliveries of a queue. */
export function startDeliveries(settings: DeliverySettings, owner: DeliveryOwner): Deliveries {
  const { store, logger, lease, upkeepEvery, pollEvery, reconnect } = owner
  const own = { store, ...(logger !== undefined && { logger }) }
  const queue = new Queue(DELIVERIES, { ...own, [RESERVED]: true } as QueueOptions)
  const sender = new Sender(settings, owner)
  const newWorker = (autorun: boolean): Worker => {
    const made = new Worker(
      queue,
      {
        [owner.queue]: {
          run: (job: Job, ctx: JobContext) => sender.run(job, ctx),
          backoff: { type: 'custom', name: 'own' },
        },
      },
      {
        ...own,
        autorun,
        concurrency: settings.concurrency,
        lease,
        upkeepEvery,
        pollEvery,
        reconnect,
        retryable: (error) => (error instanceof DeliveryFailed && error.final ? 'fatal' : 'retry'),
        backoff: { own: (_attempt, error) => (error instanceof DeliveryFailed ? error.retryIn : 10_000) },
      },
    )
    made.on('error', ({ error }) => isReportedByWorker(error) || owner.failed(error))
    return made
  }
  const worker = newWorker(true)
  return {
    close: async (options) => {
      try {
        await worker.close(options)
      } finally {
        sender.close()
      }
    },
    drain: async (options) => {
      const { runtime } = connect(store)
      const late = new AbortController()
      const stop = runtime.timer(parseDuration(options.timeout, 'timeout'), () => late.abort())
      const last = newWorker(false)
      try {
        await worker.close(options)
        await last.run({ until: 'drained', signal: late.signal })
      } finally {
        stop()
        await last.close(options).finally(() => sender.close())
      }
    },
  }
}

/** Whether the user's worker reports the same error: of the store, or of the process. */
function isReportedByWorker(error: Error): boolean {
  return isMillraceError(error) && (error.code === 'EVENT_LOOP_BLOCKED' || Object.hasOwn(storeErrors, error.code))
}

/** Sends deliveries and records their outcomes on the job. */
class Sender {
  readonly #settings: DeliverySettings
  readonly #owner: DeliveryOwner
  readonly #runtime: Runtime
  readonly #session: Session
  readonly #poster: Poster
  readonly #breaker: Breaker
  readonly #logger: Logger
  /** Hosts whose refusal was logged. */
  readonly #warned = new Set<string>()
  /** The last pending note of each job, so that notes are written in order. */
  readonly #noting = new Map<string, Promise<void>>()

  constructor(settings: DeliverySettings, owner: DeliveryOwner) {
    const connection = connect(owner.store)
    this.#settings = settings
    this.#owner = owner
    this.#logger = safeLogger(owner.logger)
    this.#runtime = connection.runtime
    this.#session = sessionFor(connection)()
    this.#poster = new Poster(this.#runtime, settings)
    this.#breaker = new Breaker(this.#runtime, settings.breaker)
  }

  close(): void {
    this.#poster.close()
  }

  /** Runs one attempt. */
  async run(job: Job, ctx: JobContext): Promise<void> {
    const delivery = job.data as Delivery
    const id = webhookId(job.id)
    const record = await this.#session.get(delivery.job.id)
    // It was delivered, but the process died before the delivery was settled.
    if (record !== undefined && wasAccepted(record, id)) return
    if (job.attempt > delivery.attempts) {
      throw await this.#failed(
        job,
        id,
        deliveryError('the worker that sent it last did not live to see the answer'),
        {},
      )
    }
    const { host } = new URL(delivery.url)
    const pass = this.#breaker.enter(host)
    if ('wait' in pass) return ctx.snooze(Math.ceil(pass.wait * (1 + this.#runtime.random() / 10)))
    let response: PostResponse
    try {
      response = await this.#post(job, id, ctx.signal)
    } catch (error) {
      const aborted = ctx.signal.aborted
      // A refused webhook was not called, which says nothing about the host.
      const isHostFailure = !aborted && !isMillraceError(error, 'WEBHOOK_REFUSED')
      this.#breaker.leave(host, pass, isHostFailure ? false : undefined)
      if (aborted) throw error
      const known = isInstance(error, MillraceError) ? error : deliveryError(messageOf(error))
      this.#warnOnce(known)
      throw await this.#failed(job, id, known, {})
    }
    const { status } = response
    this.#breaker.leave(host, pass, status < 500 && status !== 429)
    if (status < 200 || status > 299)
      throw await this.#failed(job, id, deliveryError(`it was answered ${status}`), response)
    await this.#note(job, { ...this.#entry(job, id, { status }), came: 'sent' })
  }

  /**
   * Logs once per host that it is refused: a developer with a private address would not know why no webhook arrives.
   */
  #warnOnce({ message, details }: MillraceError): void {
    const { host } = (details ?? {}) as { readonly host?: string }
    if (host === undefined || this.#warned.has(host) || this.#warned.size >= MAX_WARNED) return
    this.#warned.add(host)
    this.#logger.warn({ host, queue: this.#owner.queue }, message)
  }

  #post(job: Job, id: string, signal: AbortSignal): Promise<PostResponse> {
    const { url, event, timeout, at, job: data } = job.data as Delivery
    const timestamp = new Date(at ?? job.createdAt).toISOString()
    const body = Buffer.from(JSON.stringify({ type: `job.${event}`, timestamp, data }))
    const seconds = String(Math.floor(this.#runtime.now() / 1000))
    const { keys } = this.#settings
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'millrace',
      'webhook-id': id,
      'webhook-timestamp': seconds,
      ...(keys.length > 0 && { 'webhook-signature': sign(keys, id, seconds, body) }),
    }
    return this.#poster.post({ url, headers, body, timeout, signal })
  }

  /** Records a failure; returns the error to throw. */
  async #failed(
    job: Job,
    id: string,
    error: MillraceError,
    { status, retryAfter }: Partial<PostResponse>,
  ): Promise<DeliveryFailed> {
    const { attempts, backoff } = job.data as Delivery
    const final = job.attempt >= attempts || status === 410 || error.code === 'WEBHOOK_REFUSED'
    const entry = this.#entry(job, id, { ...(status !== undefined && { status }), error: error.message })
    await this.#note(job, { ...entry, came: final ? 'gave-up' : 'again', error: describeError(error) })
    const requestedWait = status === 429 || status === 503 ? parseRetryAfter(retryAfter, this.#runtime.now()) : 0
    return new DeliveryFailed(
      error,
      final,
      Math.max(requestedWait, backoffDelay(backoff, job.attempt, this.#runtime.random)),
    )
  }

  #entry(job: Job, id: string, came: { status?: number; error?: string }): Pick<Delivered, 'entry' | 'made'> {
    const { event, url, attempts } = job.data as Delivery
    const attempt = Math.min(job.attempt, attempts)
    return { made: job.createdAt, entry: { id, at: this.#runtime.now(), event, url, attempt, ...came } }
  }

  /** Records an outcome on the job, one after another; skips a job that is gone or runs again. */
  #note(job: Job, delivered: Delivered): Promise<void> {
    const { id } = (job.data as Delivery).job
    const before = this.#noting.get(id) ?? Promise.resolve()
    const noted = before.then(() => this.#writeNote(id, delivered))
    const quiet = noted
      .catch(() => {})
      .then(() => {
        if (this.#noting.get(id) === quiet) this.#noting.delete(id)
      })
    this.#noting.set(id, quiet)
    return noted
  }

  async #writeNote(id: string, delivered: Delivered): Promise<void> {
    const job = await this.#session.get(id)
    const note = (each: JobRecord): readonly Change[] => noteDelivery(each, delivered) ?? []
    if (job !== undefined && (await runSteps(decideAndCommit(this.#session, job, note)))?.done === true) return
    const { came, error } = delivered
    if (came !== 'gave-up') return
    this.#owner.failed(
      new MillraceError(
        'WEBHOOK_FAILED',
        `The end of job ${id} was not delivered, and the job is gone or runs again: ${error?.message}`,
        {
          details: { id },
        },
      ),
    )
  }
}

/** How long `Retry-After` requests to wait, within limits. */
function parseRetryAfter(retryAfter: string | undefined, now: number): Millis {
  if (retryAfter === undefined) return 0
  const wait = /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - now
  return Number.isNaN(wait) ? 0 : Math.min(Math.max(0, wait), MAX_RETRY_AFTER)
}

/** The message of an error; if several addresses failed, that of the first. */
function messageOf(error: unknown): string {
  const first: unknown = isInstance(error, AggregateError) ? error.errors[0] : error
  return describeError(first).message || 'the connection failed'
}

function deliveryError(why: string): MillraceError {
  return new MillraceError('WEBHOOK_FAILED', `The webhook was not delivered: ${why}.`)
}
