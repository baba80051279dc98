// worker/close.ts: what a close waits for, for how long, and the errors if that was too short.
import { parseDuration } from '../job/values/duration.js'
import type { Duration } from '../job/values/duration.js'
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import type { Millis } from '../job/job.js'
import type { Deliveries } from '../queue/settings/webhook.js'
import { refuseUnknown } from '../job/values/names.js'
import { within } from '../store/runtime.js'
import type { Runtime } from '../store/runtime.js'
import type { Slots } from './slots.js'

/** How long closing waits. */
export interface CloseOptions {
  /** How long running handlers may take before their signals abort. Default 30 s. */
  readonly timeout?: Duration
  /** How long they may take after that. Default 5 s. */
  readonly grace?: Duration
}

/** `CloseOptions` in milliseconds. */
export interface CloseTimeouts {
  readonly timeout: Millis
  readonly grace: Millis
}

/** Checks the options of a close, before anything is closed. */
export function parseClose(options: CloseOptions, where: string): CloseTimeouts {
  refuseUnknown(options, ['timeout', 'grace'], where)
  return {
    timeout: parseDuration(options.timeout ?? 30_000, `${where}: timeout`),
    grace: parseDuration(options.grace ?? 5_000, `${where}: grace`),
  }
}

/**
 * Waits for the running handlers; aborts those that take too long, and waits again. Returns how many are left; undefined
 * if all of them ended in time.
 */
export async function endHandlers(
  runtime: Runtime,
  slots: Slots,
  { timeout, grace }: CloseTimeouts,
): Promise<number | undefined> {
  if (await within(runtime, timeout, slots.whenIdle())) return undefined
  for (const attempt of [...slots.running]) attempt.abort('shutdown')
  await within(runtime, grace, slots.whenIdle())
  const left = slots.running.length
  for (const attempt of [...slots.running]) if (attempt.isHeldByItself) attempt.abandon()
  return left
}

/**
 * Waits for deliveries in flight, or for all that can be sent now; returns the error if that took too long. None is
 * begun after that.
 */
export async function endDeliveries(
  deliveries: Deliveries | undefined,
  how: keyof Deliveries,
  timeouts: CloseTimeouts,
): Promise<unknown> {
  try {
    await deliveries?.[how](timeouts)
    return undefined
  } catch (error) {
    if (!isMillraceError(error, 'SHUTDOWN_TIMEOUT')) return error
    return new MillraceError(
      'SHUTDOWN_TIMEOUT',
      `Deliveries to webhooks were still in progress after ${timeouts.timeout} ms and were interrupted; the worker that sends them next starts again.`,
      { details: { timeout: timeouts.timeout, left: 0 } },
    )
  }
}

/** The error of a close whose handlers did not end in time. `left` is how many are still running. */
export function handlersLate(timeout: Millis, left: number): MillraceError {
  return new MillraceError(
    'SHUTDOWN_TIMEOUT',
    `Handlers were still running after ${timeout} ms and were asked to stop; ` +
      (left === 0
        ? 'all of them ended, and their jobs were handed back or settled.'
        : `${left} ignored their signal, and their jobs will be taken over when the leases run out.`),
    { details: { timeout, left } },
  )
}

/** The error of a close whose last settlements were not acknowledged. */
export function settlementsLate(timeout: Millis): MillraceError {
  return new MillraceError(
    'SHUTDOWN_TIMEOUT',
    'The store did not take what the last jobs came to; they run again when their leases have run out.',
    { details: { timeout, left: 0 } },
  )
}
