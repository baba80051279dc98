// worker/claims/options.ts: the options of `queue.claim`: their types, checks and defaults.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { Millis } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid, isObject, mustBe, whole } from '../../job/values/options.js'
import type { CustomBackoff } from '../../job/retry.js'
import type { JobDefinitions } from '../../queue/define.js'
import { checkAbortSignal } from '../../queue/operations/abort-signal.js'
import type { Handled } from '../../store/store.js'
import { handled } from '../options.js'

/** Options of `queue.claim`. */
export interface ClaimOptions<Name extends string = string> {
  /** The names to claim. Default: all that the queue declares, or any. */
  readonly names?: readonly Name[]
  /** How many jobs to claim at most, up to 1000. Default 1. */
  readonly max?: number
  /** How long the jobs belong to the caller without a heartbeat; at least 10 ms. Default 30 s. */
  readonly lease?: Duration
  /** How long to wait for a job if there is none. Default: not at all. */
  readonly wait?: Duration
  /**
   * The worker id that the leases name, 1 to 255 printable characters; give each process its own. Default: a new id for
   * each queue object.
   */
  readonly worker?: string
  /** Backoff strategies by name, for jobs with `backoff: { type: 'custom', name }` that fail. Default: none. */
  readonly backoff?: Readonly<Record<string, CustomBackoff>>
  /** Ends the wait with the signal's reason; jobs that arrive after that are released. Default: none. */
  readonly signal?: AbortSignal
}

const optionNames = [
  'names',
  'max',
  'lease',
  'wait',
  'worker',
  'backoff',
  'signal',
] as const satisfies readonly (keyof ClaimOptions)[]

/** `ClaimOptions`, parsed. */
export interface ClaimRequest {
  readonly handles: readonly Handled[]
  /** The claimed names; undefined: all. */
  readonly names: readonly string[] | undefined
  readonly max: number
  readonly lease: Millis
  readonly wait: Millis
  readonly worker: string | undefined
  readonly custom: Readonly<Record<string, CustomBackoff>>
  readonly signal: AbortSignal | undefined
}

/** The most jobs that one claim takes: they are all leased from the same moment on. */
const MAX_JOBS = 1000

/** The shortest lease, as for workers. */
const MIN_LEASE: Millis = 10

/** Checks the options and fills in the defaults. `declared` throws for a name that the queue does not declare. */
export function parseClaim(
  options: ClaimOptions,
  jobs: JobDefinitions | undefined,
  declared: (name: string) => unknown,
): ClaimRequest {
  const where = 'queue.claim'
  refuseUnknown(options, optionNames, where)
  const { max = 1, worker, backoff = {} } = options
  const lease = parseLease(options.lease ?? 30_000, `${where}: lease`)
  if (!isObject(backoff)) throw mustBe(`${where}: backoff`, 'an object of functions by name', backoff)
  for (const [name, strategy] of Object.entries(backoff)) {
    if (typeof strategy !== 'function') {
      throw invalid(`${where}: backoff.${name} must be a function (attempt, error) => duration.`)
    }
  }
  const names = options.names === undefined ? jobs && Object.keys(jobs) : parseNames(options.names, where)
  for (const name of names ?? []) declared(name)
  return {
    handles: names === undefined ? [{ name: undefined, lease }] : names.map((name) => handled(name, lease, jobs)),
    names,
    max: whole(max, `${where}: max`, 1, MAX_JOBS),
    lease,
    wait: options.wait === undefined ? 0 : parseDuration(options.wait, `${where}: wait`),
    worker: worker === undefined ? undefined : checkName(worker, 'worker id'),
    custom: backoff,
    signal: checkAbortSignal(options.signal, where),
  }
}

/** Checks the length of a lease. */
export function parseLease(value: Duration, field: string): Millis {
  const lease = parseDuration(value, field)
  if (lease < MIN_LEASE) throw invalid(`${field} must be ${MIN_LEASE} ms or more.`)
  return lease
}

function parseNames(names: readonly string[], where: string): readonly string[] {
  if (!Array.isArray(names) || names.length === 0) throw mustBe(`${where}: names`, 'a list of at least one name', names)
  return [...new Set((names as readonly string[]).map((name) => checkName(name, 'job name')))]
}
