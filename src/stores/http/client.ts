// stores/http/client.ts: the calls of a broker, typed: submit, claim, heartbeat, complete. For programs that want to speak to
// a server job by job; queues and workers on the remote store do more.
import { errorCatalogue } from '../../job/errors/catalogue.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { ErrorCode } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { JobState } from '../../job/job.js'
import { parseDuration } from '../../job/values/duration.js'
import type { Duration, Millis } from '../../job/values/duration.js'
import { refuseUnknown } from '../../job/values/names.js'
import { mustBe } from '../../job/values/options.js'
import { sleep, systemRuntime } from '../../store/runtime.js'

/** Options of `httpClient`. */
export interface HttpClientOptions {
  /** The token, where the server has `auth`. Default: none. */
  readonly token?: string
  /** How long a call is sent again while the server cannot be reached or is busy. Default 15 s. */
  readonly patience?: Duration
  /** Sends the requests. Default: the global `fetch`. */
  readonly fetch?: typeof fetch
}

/** What may be said of a call. */
export interface CallOptions {
  /** Ends the call with the signal's reason. Default: none. */
  readonly signal?: AbortSignal
}

/** Options of `submitJob`. */
export interface SubmitOptions extends CallOptions {
  /** The options of the job, as of `queue.add`; dates as milliseconds or ISO 8601. Default: none. */
  readonly options?: Readonly<Record<string, unknown>>
  /** The same key adds a job once. Default: a new one, so that only tries of this call count as the same. */
  readonly idempotencyKey?: string
}

/** A job that was submitted. */
export interface SubmittedJob {
  /** Its id. */
  readonly id: string
  /** The queue it is in. */
  readonly queue: string
  /** The name it was added under. */
  readonly name: string
  /** Its state. */
  readonly state: string
  /** It stood already: its id or its dedup key was taken. */
  readonly duplicate: boolean
  /** When it may start, if it waits for a time. */
  readonly runAt?: number
}

/** Options of `claimJob`. */
export interface ClaimJobOptions extends CallOptions {
  /** The name of the worker, its own for each process. */
  readonly worker: string
  /** The queues to claim from. */
  readonly queues: readonly string[]
  /** The names to claim. Default: any. */
  readonly names?: readonly string[]
  /** How long the job belongs to the worker without a heartbeat. Default 30 s. */
  readonly lease?: Duration
  /** How long to wait for a job, up to 25 s. Default: not at all. */
  readonly wait?: Duration
}

/** A claimed job: `id` and `fence` are what every call about it needs. */
export interface RemoteJob<Data = unknown> {
  /** Its id. */
  readonly id: string
  /** The queue it is in. */
  readonly queue: string
  /** The name it was added under. */
  readonly name: string
  /** The version of its declaration. */
  readonly version: number
  /** Its payload. */
  readonly data: Data
  /** The number of this attempt, from 1. */
  readonly attempt: number
  /** Maximum number of attempts; null: without bound. */
  readonly attempts: number | null
  /** The fence of the claim. */
  readonly fence: number
  /** The length of the lease in milliseconds: send a heartbeat every third of it. */
  readonly leaseMs: Millis
}

/** A job of the caller, as calls about it need it. */
export type HeldLease = Pick<RemoteJob, 'id' | 'fence'>

/** The answer to a claim. */
export interface ClaimAnswer<Data = unknown> {
  /** The job; undefined if there was none. */
  readonly job: RemoteJob<Data> | undefined
  /** What an operator asks of the worker: to take no more jobs, or to end. */
  readonly state: 'running' | 'pausing' | 'stopping'
}

/** What a settlement came to. */
export interface SettledJob {
  /** The state that the job is in now. */
  readonly state: JobState
  /** An earlier try had settled it, whose answer was lost. */
  readonly repeated: boolean
  /** When it runs again. */
  readonly runAt?: number
}

/** The wait between two tries grows from the first to the second. */
const FIRST_WAIT: Millis = 100
const LONGEST_WAIT: Millis = 2_000
/** How long one try may take beside its wait for a job. */
const TRY_TIMEOUT: Millis = 30_000
/** The statuses of servers that are away or busy, and of proxies before them. */
const TRY_AGAIN: ReadonlySet<number> = new Set([429, 502, 503, 504])

/** A client of a Millrace server. Errors are `MillraceError`s with the code of the server. */
export class HttpClient {
  readonly #base: string
  readonly #token: string | undefined
  readonly #patience: Millis
  readonly #fetch: typeof fetch
  readonly #runtime = systemRuntime()

  /** @internal Made by `httpClient`. */
  constructor(url: string, options: HttpClientOptions) {
    refuseUnknown(options, ['token', 'patience', 'fetch'], 'httpClient')
    if (typeof url !== 'string' || !URL.canParse(url) || !/^https?:/.test(url)) {
      throw mustBe('httpClient', 'the URL of a server, such as http://127.0.0.1:7070', url)
    }
    this.#base = url.replace(/\/+$/, '')
    this.#token = options.token
    this.#patience = parseDuration(options.patience ?? 15_000, 'httpClient: patience')
    this.#fetch = options.fetch ?? fetch
  }

  /** Adds a job; resolves when it is durable. A call that is sent again, because its answer was lost, adds it once. */
  submitJob(queue: string, name: string, data?: unknown, options: SubmitOptions = {}): Promise<SubmittedJob> {
    refuseUnknown(options, ['options', 'idempotencyKey', 'signal'], 'submitJob')
    const { options: own, idempotencyKey, signal } = options
    const hasId = own?.['id'] !== undefined // then the id makes it the same job
    const key = idempotencyKey ?? (hasId ? undefined : this.#runtime.id())
    const body = { name, ...(data !== undefined && { data }), ...(own !== undefined && { options: own }) }
    return this.#call(`/queues/${encodeURIComponent(queue)}/jobs`, body, { signal, key })
  }

  /** Claims one job; waits for it if there is none. A claim whose answer was lost gets the same job again. */
  async claimJob<Data = unknown>(options: ClaimJobOptions): Promise<ClaimAnswer<Data>> {
    refuseUnknown(options, ['worker', 'queues', 'names', 'lease', 'wait', 'signal'], 'claimJob')
    const { signal, ...body } = options
    const wait = body.wait === undefined ? 0 : parseDuration(body.wait, 'claimJob: wait')
    const key = this.#runtime.id()
    const { state, jobs } = await this.#call<{
      readonly state: ClaimAnswer['state']
      readonly jobs: readonly RemoteJob<Data>[]
    }>('/claims', { ...body, max: 1 }, { signal, key, wait })
    return { job: jobs[0], state }
  }

  /** Renews the lease. Rejects with LEASE_LOST, whose `details.reason` is why, or with JOB_REMOVED: stop the work then. */
  heartbeat(
    job: HeldLease,
    options: CallOptions & { readonly lease?: Duration } = {},
  ): Promise<{ readonly leaseMs: Millis; readonly state: ClaimAnswer['state'] }> {
    refuseUnknown(options, ['lease', 'signal'], 'heartbeat')
    const { lease, signal } = options
    return this.#about(job, 'heartbeat', lease === undefined ? {} : { lease }, signal)
  }

  /** Completes a job with a result: any JSON. */
  completeJob(job: HeldLease, result?: unknown, { signal }: CallOptions = {}): Promise<SettledJob> {
    return this.#about(job, 'complete', result === undefined ? {} : { result }, signal)
  }

  /** Fails the attempt. The job is retried by its own rules, after `in`, or with `retry: false` not at all. */
  failJob(
    job: HeldLease,
    error: unknown,
    options: CallOptions & { readonly retry?: boolean; readonly in?: Duration } = {},
  ): Promise<SettledJob> {
    refuseUnknown(options, ['retry', 'in', 'signal'], 'failJob')
    const { signal, ...how } = options
    const { name, message, code, stack } = describeError(error)
    const own = { name, message, ...(code !== undefined && { code }), ...(stack !== undefined && { stack }) }
    return this.#about(job, 'fail', { error: own, ...how }, signal)
  }

  /** Runs the job again after that time; the attempt does not count. */
  snoozeJob(job: HeldLease, duration: Duration, { signal }: CallOptions = {}): Promise<SettledJob> {
    return this.#about(job, 'snooze', { for: duration }, signal)
  }

  /** Returns the job to its queue; the attempt does not count. */
  releaseJob(job: HeldLease, { signal }: CallOptions = {}): Promise<SettledJob> {
    return this.#about(job, 'release', {}, signal)
  }

  #about<T>({ id, fence }: HeldLease, call: string, fields: object, signal: AbortSignal | undefined): Promise<T> {
    return this.#call(`/jobs/${encodeURIComponent(id)}/${call}`, { fence, ...fields }, { signal })
  }

  /** Sends a call until the server answers it. */
  async #call<T>(
    path: string,
    body: object,
    { signal, key, wait = 0 }: { signal?: AbortSignal | undefined; key?: string | undefined; wait?: Millis },
  ): Promise<T> {
    const text = JSON.stringify(body)
    const end = this.#runtime.elapsed() + this.#patience
    for (let pause = FIRST_WAIT; ; pause = Math.min(2 * pause, LONGEST_WAIT)) {
      const timeout = AbortSignal.timeout(TRY_TIMEOUT + wait)
      let failure: MillraceError
      try {
        const response = await this.#fetch(`${this.#base}/v1${path}`, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            ...(this.#token !== undefined && { authorization: `Bearer ${this.#token}` }),
            ...(key !== undefined && { 'idempotency-key': key }),
          },
          body: text,
          signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
        })
        const answer = await response.text()
        if (response.ok) return JSON.parse(answer) as T
        failure = errorOf(response.status, answer)
        if (!TRY_AGAIN.has(response.status)) throw failure
      } catch (error) {
        if (signal?.aborted === true) throw signal.reason
        if (error instanceof MillraceError) throw error
        failure = unreachable(this.#base, error)
      }
      if (this.#runtime.elapsed() + pause >= end) throw failure
      await sleep(this.#runtime, pause * (0.5 + this.#runtime.random() / 2))
      if (signal?.aborted === true) throw signal.reason
    }
  }
}

/** A client of the server at that URL, which may end with the `base` that the server is mounted under. */
export function httpClient(url: string, options: HttpClientOptions = {}): HttpClient {
  return new HttpClient(url, options)
}

/** The error that an answer describes. A code of a newer server is kept in its details. */
function errorOf(status: number, answer: string): MillraceError {
  let problem: { readonly code?: unknown; readonly detail?: unknown; readonly details?: object } = {}
  try {
    problem = (JSON.parse(answer) ?? {}) as typeof problem
  } catch {
    // a proxy's page
  }
  const { code, detail, details } = problem
  const known = typeof code === 'string' && Object.hasOwn(errorCatalogue, code)
  const fallback: ErrorCode = status >= 500 ? 'STORE_UNAVAILABLE' : 'INVALID_REQUEST'
  const message = typeof detail === 'string' ? detail : `The server answered with status ${status}.`
  return new MillraceError(known ? (code as ErrorCode) : fallback, message, {
    details: { status, ...details, ...(!known && code !== undefined && { code }) },
  })
}

function unreachable(base: string, cause: unknown): MillraceError {
  const message = `The server at ${base} cannot be reached: ${describeError(cause).message}`
  return new MillraceError('STORE_UNAVAILABLE', message, { cause })
}
