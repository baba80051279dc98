// What becomes of deliveries, seen from the store: they are in no list of the user's.
import type { Store } from 'millrace'
import { DELIVERIES } from '../../../src/job/webhooks.js'
import type { StoreEvent, StoreEventType } from '../../../src/job/events.js'

/** The next event of a type about a delivery. */
export function ofDelivery(store: Store, type: StoreEventType): Promise<StoreEvent> {
  return new Promise((resolve) => {
    const stop = store.watch({ events: true }, ({ events }) => {
      const found = events.find((each) => each.queue === DELIVERIES && each.type === type)
      if (found === undefined) return
      stop()
      resolve(found)
    })
  })
}
