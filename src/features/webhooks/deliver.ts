// features/webhooks/deliver.ts: a worker beside the user's own that sends the deliveries of its queue.
import { storeErrors } from '../../job/catalogue-stores.js'
import { MillraceError, isInstance, isMillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { backoffDelay } from '../../job/retry.js'
import { DELIVERIES, noteDelivery, wasTaken } from '../../job/webhooks.js'
import type { Delivered, Delivery } from '../../job/webhooks.js'
import { safeLogger } from '../../queue/events/events.js'
import type { Logger } from '../../queue/events/events.js'
import type { Job } from '../../queue/job.js'
import { RESERVED } from '../../queue/queue-checks.js'
import { Queue } from '../../queue/queue.js'
import type { QueueOptions } from '../../queue/queue-types.js'
import { sessionFor } from '../../store/session.js'
import type { Session } from '../../store/session.js'
import { webhookId } from '../../queue/settings/webhook.js'
import type { Deliveries, DeliveryPlace } from '../../queue/settings/webhook.js'
import { connect } from '../../store/connection.js'
import type { Runtime } from '../../store/runtime.js'
import type { JobContext } from '../../worker/attempt/context.js'
import { Worker } from '../../worker/worker.js'
import { Breaker } from './breaker.js'
import type { BreakerSettings } from './breaker.js'
import { Poster } from './post.js'
import type { Answer, PostingSettings } from './post.js'
import { sign } from './sign.js'

/** What deliveries are sent with. */
export interface DeliverySettings extends PostingSettings {
  readonly keys: readonly Buffer[]
  readonly concurrency: number
  readonly breaker: BreakerSettings | undefined
}

/** The longest wait that a receiver can ask for. */
const LONGEST_WAIT: Millis = 3_600_000

/** The most hosts that it is said of: customers may name any number. */
const MOST_WARNED = 1000

/** How often a note is made anew because somebody moved the job meanwhile. */
const RACES = 100

/** An attempt to deliver that failed. */
class DeliveryFailed extends MillraceError {
  /** There is no use in another. */
  readonly final: boolean
  readonly retryIn: Millis

  constructor(cause: MillraceError, final: boolean, retryIn: Millis) {
    super(cause.code, cause.message)
    this.final = final
    this.retryIn = retryIn
  }
}

/** Starts to send the deliveries of a queue. */
export function startDeliveries(settings: DeliverySettings, place: DeliveryPlace): Deliveries {
  const { store, logger, lease, upkeepEvery, pollEvery, reconnect } = place
  const own = { store, ...(logger !== undefined && { logger }) }
  const queue = new Queue(DELIVERIES, { ...own, [RESERVED]: true } as QueueOptions)
  const sender = new Sender(settings, place)
  const worker = new Worker(
    queue,
    {
      [place.queue]: {
        run: (job: Job, ctx: JobContext) => sender.run(job, ctx),
        backoff: { type: 'custom', name: 'own' },
      },
    },
    {
      ...own,
      concurrency: settings.concurrency,
      lease,
      upkeepEvery,
      pollEvery,
      reconnect,
      retryable: (error) => (error instanceof DeliveryFailed && error.final ? 'fatal' : 'retry'),
      backoff: { own: (_attempt, error) => (error instanceof DeliveryFailed ? error.retryIn : 10_000) },
    },
  )
  worker.on('error', ({ error }) => isOfWorkers(error) || place.failed(error))
  return {
    close: async (options) => {
      try {
        await worker.close(options)
      } finally {
        sender.close()
      }
    },
  }
}

/** Whether the worker beside it tells the same: what is wrong with the store, or with the process. */
function isOfWorkers(error: Error): boolean {
  return isMillraceError(error) && (error.code === 'EVENT_LOOP_BLOCKED' || Object.hasOwn(storeErrors, error.code))
}

/** Sends deliveries, and writes down how that went. */
class Sender {
  readonly #settings: DeliverySettings
  readonly #place: DeliveryPlace
  readonly #runtime: Runtime
  readonly #way: Session
  readonly #poster: Poster
  readonly #breaker: Breaker
  readonly #logger: Logger
  /** Hosts that it was said of that they are not called. */
  readonly #warned = new Set<string>()
  /** The last note on its way about each job, so that one follows the other. */
  readonly #noting = new Map<string, Promise<void>>()

  constructor(settings: DeliverySettings, place: DeliveryPlace) {
    const connection = connect(place.store)
    this.#settings = settings
    this.#place = place
    this.#logger = safeLogger(place.logger)
    this.#runtime = connection.runtime
    this.#way = sessionFor(connection)()
    this.#poster = new Poster(this.#runtime, settings)
    this.#breaker = new Breaker(this.#runtime, settings.breaker)
  }

  close(): void {
    this.#poster.close()
  }

  /** One attempt. */
  async run(job: Job, ctx: JobContext): Promise<void> {
    const delivery = job.data as Delivery
    const id = webhookId(job.id)
    const about = await this.#way.get(delivery.job.id)
    // It was taken, and this process or another died before the delivery could end.
    if (about !== undefined && wasTaken(about, id)) return
    if (job.attempt > delivery.attempts) {
      throw await this.#failed(job, id, failedBy('the worker that sent it last did not live to see the answer'), {})
    }
    const { host } = new URL(delivery.url)
    const pass = this.#breaker.enter(host)
    if ('wait' in pass) return ctx.snooze(Math.ceil(pass.wait * (1 + this.#runtime.random() / 10)))
    let answer: Answer
    try {
      answer = await this.#post(job, id, ctx.signal)
    } catch (error) {
      const brokenOff = ctx.signal.aborted
      // What was refused was not called: that says nothing of the host.
      const isHosts = !brokenOff && !isMillraceError(error, 'WEBHOOK_REFUSED')
      this.#breaker.leave(host, pass, isHosts ? false : undefined)
      if (brokenOff) throw error
      const known = isInstance(error, MillraceError) ? error : failedBy(reasonOf(error))
      this.#warnOnce(known)
      throw await this.#failed(job, id, known, {})
    }
    const { status } = answer
    this.#breaker.leave(host, pass, status < 500 && status !== 429)
    if (status < 200 || status > 299) throw await this.#failed(job, id, failedBy(`it was answered ${status}`), answer)
    await this.#note(job, { ...this.#entry(job, id, { status }), came: 'sent' })
  }

  /** Says once of a host that it is not called: whoever develops against a private one wonders why nothing comes. */
  #warnOnce({ message, details }: MillraceError): void {
    const { host } = (details ?? {}) as { readonly host?: string }
    if (host === undefined || this.#warned.has(host) || this.#warned.size >= MOST_WARNED) return
    this.#warned.add(host)
    this.#logger.warn({ host, queue: this.#place.queue }, message)
  }

  #post(job: Job, id: string, signal: AbortSignal): Promise<Answer> {
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

  /** Writes a failure down; answers what to fail with. */
  async #failed(
    job: Job,
    id: string,
    error: MillraceError,
    { status, retryAfter }: Partial<Answer>,
  ): Promise<DeliveryFailed> {
    const { attempts, backoff } = job.data as Delivery
    const final = job.attempt >= attempts || status === 410 || error.code === 'WEBHOOK_REFUSED'
    const entry = this.#entry(job, id, { ...(status !== undefined && { status }), error: error.message })
    await this.#note(job, { ...entry, came: final ? 'gave-up' : 'again', error: describeError(error) })
    const asked = status === 429 || status === 503 ? waitAsked(retryAfter, this.#runtime.now()) : 0
    return new DeliveryFailed(error, final, Math.max(asked, backoffDelay(backoff, job.attempt, this.#runtime.random)))
  }

  #entry(job: Job, id: string, came: { status?: number; error?: string }): Pick<Delivered, 'entry' | 'made'> {
    const { event, url, attempts } = job.data as Delivery
    const attempt = Math.min(job.attempt, attempts)
    return { made: job.createdAt, entry: { id, at: this.#runtime.now(), event, url, attempt, ...came } }
  }

  /** Writes it down with the job, one after another; where the job is gone, or runs again, there is nothing to write. */
  #note(job: Job, delivered: Delivered): Promise<void> {
    const { id } = (job.data as Delivery).job
    const before = this.#noting.get(id) ?? Promise.resolve()
    const noted = before.then(() => this.#writeDown(id, delivered))
    const quiet = noted
      .catch(() => {})
      .then(() => {
        if (this.#noting.get(id) === quiet) this.#noting.delete(id)
      })
    this.#noting.set(id, quiet)
    return noted
  }

  async #writeDown(id: string, delivered: Delivered): Promise<void> {
    let job: JobRecord | undefined = await this.#way.get(id)
    for (let races = 0; job !== undefined && races < RACES; races++) {
      const changes = noteDelivery(job, delivered)
      if (changes === undefined) break
      const verdict = await this.#way.commit(changes)
      if (verdict.ok) return
      job = verdict.why === 'fence' ? await this.#way.get(id) : undefined
    }
    const { came, error } = delivered
    if (came !== 'gave-up') return
    this.#place.failed(
      new MillraceError(
        'WEBHOOK_FAILED',
        `The end of job ${id} was not told, and the job is gone or runs again: ${error?.message}`,
        {
          details: { id },
        },
      ),
    )
  }
}

/** How long `Retry-After` asks to wait, within bounds. */
function waitAsked(retryAfter: string | undefined, now: number): Millis {
  if (retryAfter === undefined) return 0
  const wait = /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - now
  return Number.isNaN(wait) ? 0 : Math.min(Math.max(0, wait), LONGEST_WAIT)
}

/** What went wrong, in words; where several addresses were tried, that is in what they failed with. */
function reasonOf(error: unknown): string {
  const first: unknown = isInstance(error, AggregateError) ? error.errors[0] : error
  return describeError(first).message || 'the connection failed'
}

function failedBy(why: string): MillraceError {
  return new MillraceError('WEBHOOK_FAILED', `The webhook was not delivered: ${why}.`)
}
