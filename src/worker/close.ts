// worker/close.ts: how a worker ends: stop taking, wait, abort, wait once more, wait for deliveries, let go.
import { parseDuration } from '../job/duration.js'
import type { Duration } from '../job/duration.js'
import { MillraceError, isMillraceError } from '../job/errors.js'
import type { Millis } from '../job/job.js'
import type { Deliveries } from '../queue/settings/webhook.js'
import { refuseUnknown } from '../job/names.js'
import type { Runtime } from '../store/runtime.js'
import type { Settlements } from './settlements.js'
import type { Slots } from './slots.js'

/** How long to be patient. */
export interface CloseOptions {
  /** How long running handlers may take before their signals abort. Default 30 s. */
  readonly timeout?: Duration
  /** How long they may take after that. Default 5 s. */
  readonly grace?: Duration
}

/** What closing needs of the worker. */
export interface Closing {
  readonly runtime: Runtime
  readonly slots: Slots
  readonly settlements: Settlements
  stopTaking(): Promise<void>
  /** What it sends to webhooks, if it does. */
  deliveries(): Deliveries | undefined
  stopped(): Promise<void>
}

/** `CloseOptions` in milliseconds. */
export interface Patience {
  readonly timeout: Millis
  readonly grace: Millis
}

/** Reads what was said about closing, before anything is closed. */
export function parseClose(options: CloseOptions, where: string): Patience {
  refuseUnknown(options, ['timeout', 'grace'], where)
  return {
    timeout: parseDuration(options.timeout ?? 30_000, `${where}: timeout`),
    grace: parseDuration(options.grace ?? 5_000, `${where}: grace`),
  }
}

/** Ends a worker. Everything is let go of before it rejects. */
export async function closeWorker({ timeout, grace }: Patience, worker: Closing): Promise<void> {
  const { runtime, slots, settlements } = worker
  const began = runtime.elapsed()
  // The last answer may be waiting for a transaction of the very handlers that are waited for.
  const stoppedTaking = within(runtime, grace, worker.stopTaking())
  const inTime = await within(runtime, timeout, slots.whenIdle())
  let left = 0
  if (!inTime) {
    for (const attempt of [...slots.running]) attempt.abort('shutdown')
    await within(runtime, grace, slots.whenIdle())
    left = slots.running.length
    for (const attempt of [...slots.running]) if (attempt.isHeldByItself) attempt.abandon()
  }
  await stoppedTaking
  const settled = await within(runtime, grace, settlements.idle())
  settlements.giveUp()
  // What the last jobs came to is durable now, and so are the deliveries that go with it.
  const patience = Math.max(grace, timeout - (runtime.elapsed() - began))
  const undelivered = await drain(worker.deliveries(), { timeout: patience, grace })
  await within(runtime, grace, worker.stopped())
  if (inTime && settled && undelivered === undefined) return
  if (inTime && settled) throw undelivered
  if (inTime) {
    throw new MillraceError(
      'SHUTDOWN_TIMEOUT',
      'The store did not take what the last jobs came to; they run again when their leases have run out.',
      { details: { timeout, left: 0 } },
    )
  }
  throw new MillraceError(
    'SHUTDOWN_TIMEOUT',
    `Handlers were still running after ${timeout} ms and were told to stop; ` +
      (left === 0
        ? 'all of them ended, and their jobs were handed back or settled.'
        : `${left} ignored their signal, and their jobs will be taken over when the leases run out.`),
    { details: { timeout, left } },
  )
}

/** Waits for deliveries under way; answers the error if that took too long. */
async function drain(deliveries: Deliveries | undefined, patience: Patience): Promise<unknown> {
  try {
    await deliveries?.close(patience)
    return undefined
  } catch (error) {
    if (!isMillraceError(error, 'SHUTDOWN_TIMEOUT')) return error
    return new MillraceError(
      'SHUTDOWN_TIMEOUT',
      `Deliveries to webhooks were still under way after ${patience.timeout} ms and were broken off; whoever sends them next begins anew.`,
      { details: { timeout: patience.timeout, left: 0 } },
    )
  }
}

/** Whether something ends in time. */
async function within(runtime: Runtime, limit: Millis, work: Promise<void>): Promise<boolean> {
  let stop = (): void => {}
  const late = new Promise<boolean>((resolve) => {
    stop = runtime.timer(limit, () => resolve(false))
  })
  const done = await Promise.race([work.then(() => true), late])
  stop()
  return done
}
