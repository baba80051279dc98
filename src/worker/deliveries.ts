// worker/deliveries.ts: starts the webhook deliveries of a worker's queue, if that has webhooks.
import type { Emitter, Logger } from '../queue/events/events.js'
import type { Deliveries, Webhooks } from '../queue/settings/webhook.js'
import type { Store } from '../store/store.js'
import type { Settings } from './options.js'

/** What deliveries need of their worker. */
export interface DeliveryHost {
  readonly queue: string
  readonly store: Store
  readonly settings: Settings
  readonly logger: Logger | false | undefined
  readonly emitter: Emitter
}

/** Starts to send the deliveries of a queue. */
export function startDeliveries(webhooks: Webhooks, host: DeliveryHost): Deliveries {
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
