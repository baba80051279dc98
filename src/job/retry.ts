// job/retry.ts: how long a failed attempt waits before the next one.

import type { Duration, Millis } from './values/duration.js'
import { MAX_DURATION, parseDuration } from './values/duration.js'
import { MillraceError, quote } from './errors/errors.js'
import { checkName, nearest, refuseUnknown } from './values/names.js'

/** A backoff, with its times of type `Time`. */
type BackoffOf<Time> =
  /** The same delay every time. */
  | {
      readonly type: 'fixed'
      /** The wait. */
      readonly delay: Time
      /** Spreads a wait d evenly over (1 - jitter)·d to d; 0 to 1. Default 0. */
      readonly jitter?: number
    }
  /** delay × attempt, at most `max`. */
  | {
      readonly type: 'linear'
      /** The first wait, and the amount by which it grows. */
      readonly delay: Time
      /** The longest wait. Default: no bound. */
      readonly max?: Time
      /** Spreads a wait d evenly over (1 - jitter)·d to d; 0 to 1. Default 0. */
      readonly jitter?: number
    }
  /** delay × factor^(attempt - 1), at most `max`. Default factor 2. */
  | {
      readonly type: 'exponential'
      /** The first wait. */
      readonly delay: Time
      /** How many times as long each wait is as the one before. Default 2. */
      readonly factor?: number
      /** The longest wait. Default: no bound. */
      readonly max?: Time
      /** Spreads a wait d evenly over (1 - jitter)·d to d; 0 to 1. Default 0. */
      readonly jitter?: number
    }
  /** Calls the function registered on the worker under this name, and passes it `delay`. */
  | {
      readonly type: 'custom'
      /** The name of the function in the worker's `backoff`. */
      readonly name: string
      /** The `delay` passed to the function. Default: nothing. */
      readonly delay?: Time
    }

/**
 * How long to wait between attempts, as a job stores it. A jitter of j (0 to 1, default 0) spreads a delay d evenly
 * over (1 - j)·d to d.
 */
export type Backoff = BackoffOf<Millis>

/** A backoff as users write it: with durations such as '10s' in place of milliseconds. */
export type BackoffOptions = BackoffOf<Duration>

/**
 * A user's own backoff, registered on the worker by name. `attempt` is 1 after the first failed attempt; `delay` is
 * that of the job's backoff, if any.
 */
export type CustomBackoff = (attempt: number, error: unknown, delay?: Millis) => Duration

/** The backoff of a job that names none: exponential from 1 s, doubling to at most 5 minutes, with full jitter. */
export const defaultBackoff: Backoff = { type: 'exponential', delay: 1_000, factor: 2, max: 300_000, jitter: 1 }

const settings = {
  fixed: ['type', 'delay', 'jitter'],
  linear: ['type', 'delay', 'max', 'jitter'],
  exponential: ['type', 'delay', 'factor', 'max', 'jitter'],
  custom: ['type', 'name', 'delay'],
} as const satisfies Record<Backoff['type'], readonly string[]>

/** Parses a user's backoff; a plain duration is a fixed one. `field` names it in the errors. */
export function parseBackoff(input: BackoffOptions | Duration, field: string): Backoff {
  if (typeof input === 'number' || typeof input === 'string') {
    if (isType(input)) throw refusal(field, `is only a type: write { type: '${input}', … }`)
    return { type: 'fixed', delay: parseDuration(input, field) }
  }
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    throw refusal(field, `must be a duration or an object with a type, not ${quote(input)}`)
  }
  const type: unknown = input.type
  if (!isType(type)) throw unknownType(type, field)
  refuseUnknown(input, settings[type], field)

  if (input.type === 'custom') {
    return withoutUndefined({
      type: 'custom',
      name: checkName(input.name, 'backoff name'),
      delay: optional(input.delay, `${field}.delay`),
    })
  }
  const delay = parseDuration(input.delay, `${field}.delay`)
  const jitter = within(input.jitter, `${field}.jitter`, 0, 1)
  if (input.type === 'fixed') return withoutUndefined({ type: 'fixed', delay, jitter })
  const max = optional(input.max, `${field}.max`)
  if (input.type === 'linear') return withoutUndefined({ type: 'linear', delay, max, jitter })
  const factor = within(input.factor, `${field}.factor`, 1, Number.MAX_VALUE)
  return withoutUndefined({ type: 'exponential', delay, factor, max, jitter })
}

function isType(value: unknown): value is Backoff['type'] {
  return typeof value === 'string' && Object.hasOwn(settings, value)
}

/** A backoff without the keys that are set to undefined: it is stored as JSON, which cannot hold them. */
function withoutUndefined(backoff: Backoff): Backoff {
  const copy = { ...backoff }
  for (const [key, value] of Object.entries(backoff)) if (value === undefined) Reflect.deleteProperty(copy, key)
  return copy
}

function optional(value: Duration | undefined, field: string): Millis | undefined {
  return value === undefined ? undefined : parseDuration(value, field)
}

function within(value: number | undefined, field: string, least: number, most: number): number | undefined {
  if (value === undefined || (typeof value === 'number' && value >= least && value <= most)) return value
  const range = most === Number.MAX_VALUE ? `of at least ${least}` : `from ${least} to ${most}`
  throw refusal(field, `must be a number ${range}, not ${quote(value)}`)
}

function unknownType(type: unknown, field: string): MillraceError {
  const types = Object.keys(settings)
  const meant = typeof type === 'string' ? nearest(type, types) : undefined
  const hint = meant === undefined ? `it is one of ${types.join(', ')}` : `did you mean '${meant}'?`
  return refusal(`${field}.type`, `cannot be ${quote(type)}; ${hint}`)
}

function refusal(field: string, complaint: string): MillraceError {
  return new MillraceError('INVALID_BACKOFF', `${field} ${complaint}`, { details: { field } })
}

/**
 * How long to wait after a failed attempt, in whole milliseconds. `attempt` is 1 for the first one; `random` returns 0
 * to 1, as Math.random does; `custom` holds the functions registered on the worker.
 */
export function backoffDelay(
  backoff: Backoff | undefined,
  attempt: number,
  random: () => number,
  custom: Readonly<Record<string, CustomBackoff>> = {},
  error?: unknown,
): Millis {
  const chosen = backoff ?? defaultBackoff
  if (chosen.type === 'custom') return customDelay(chosen, attempt, custom, error)
  const full = fullDelay(chosen, Math.min(Math.max(1, attempt), Number.MAX_SAFE_INTEGER))
  const jitter = chosen.jitter ?? 0
  return Math.round(jitter === 0 ? full : full * (1 - jitter * random()))
}

function fullDelay(backoff: Exclude<Backoff, { type: 'custom' }>, attempt: number): Millis {
  if (backoff.delay === 0) return 0 // 0 × Infinity would not be a number
  if (backoff.type === 'fixed') return backoff.delay
  const growth = backoff.type === 'linear' ? attempt : (backoff.factor ?? 2) ** (attempt - 1)
  return Math.min(backoff.delay * growth, backoff.max ?? MAX_DURATION, MAX_DURATION)
}

function customDelay(
  backoff: Extract<Backoff, { type: 'custom' }>,
  attempt: number,
  custom: Readonly<Record<string, CustomBackoff>>,
  error: unknown,
): Millis {
  const { name, delay } = backoff
  const strategy = Object.hasOwn(custom, name) ? custom[name] : undefined
  if (strategy === undefined) {
    const meant = nearest(name, Object.keys(custom))
    const hint = meant === undefined ? '' : `; did you mean '${meant}'?`
    const message = `the custom backoff ${quote(name)} is not registered on this worker${hint}`
    throw new MillraceError('UNKNOWN_BACKOFF', message, { details: { name, meant } })
  }
  try {
    return parseDuration(strategy(attempt, error, delay), `what the custom backoff ${quote(name)} answered`)
  } catch (cause) {
    throw new MillraceError('CALLBACK_FAILED', `the custom backoff ${quote(name)} failed: ${reasonOf(cause)}`, {
      cause,
      details: { callback: 'backoff', name, attempt },
    })
  }
}

function reasonOf(cause: unknown): string {
  try {
    return cause instanceof Error ? cause.message : quote(cause)
  } catch {
    return 'with an error that could not be read'
  }
}
