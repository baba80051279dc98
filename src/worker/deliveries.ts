// worker/deliveries.ts: what a worker has sent to webhooks beside its jobs, if its queue says how.
import type { Emitter, Logger } from '../queue/events/events.js'
import type { Deliveries, Webhooks } from '../queue/settings/webhook.js'
import type { Store } from '../store/store.js'
import type { Settings } from './options.js'

/** Whose deliveries are sent. */
export interface DeliveringHost {
  readonly queue: string
  readonly store: Store
  readonly settings: Settings
  readonly logger: Logger | false | undefined
  readonly emitter: Emitter
}

/** Starts to send them. */
export function startDelivering(webhooks: Webhooks, host: DeliveringHost): Deliveries {
  const { queue, store, settings, logger, emitter } = host
  const { handles, upkeepEvery, pollEvery, reconnect } = settings
  return webhooks.deliver({
    queue,
    store,
    logger,
    lease: Math.min(...handles.map(({ lease }) => lease)),
    upkeepEvery,
    pollEvery,
    reconnect,
    failed: (error) => emitter.error(error),
  })
}
