// queue/events/listen.ts: passes store events and store errors to the listeners of a queue.
import { MillraceError } from '../../job/errors.js'
import type { Stop } from '../../store/runtime.js'
import type { JobOperations } from '../operations/job-operations.js'
import { publicEvent } from './events.js'
import type { Emitter } from './events.js'
import { isOwnRow } from './subscription.js'

/** Forwards events and store errors of a queue to its emitter, until stopped. */
export function listen(queue: string, { subscription, connection }: JobOperations, emitter: Emitter): Stop {
  const stops = [
    subscription.all((event) => {
      if (event === undefined) emitter.error(eventsMissed(queue))
      else if (event.queue === queue && emitter.has(event.type) && !isOwnRow(event)) {
        emitter.emit(publicEvent(event))
      }
    }),
    connection.outage.on((error) => emitter.error(error)),
  ]
  return () => stops.forEach((stop) => stop())
}

function eventsMissed(queue: string): MillraceError {
  return new MillraceError(
    'EVENTS_MISSED',
    `Listeners of queue '${queue}' missed events: this process was too slow to read them, or asleep, or it subscribed while a long commit was under way. Look at the jobs themselves.`,
    { details: { queue } },
  )
}
