// stores/postgres/events/event-rows.ts: decodes stored events: similar events are stored together, the others one by one.
import type { StoreEvent, StoreEventType } from '../../../job/events.js'
import { draft, storedEvent } from '../../../job/events.js'
import type { EventDraft } from '../../../job/events.js'
import type { EventPage } from '../../event-pages.js'
import { FILE, GROUP, ROW, UNIT } from '../rows.js'

/** What the events stored together have in common; `of` holds queue and name by lane id. */
interface EventRun {
  readonly many: StoreEventType
  readonly at: number
  readonly worker?: string
  readonly of: Readonly<Record<string, readonly [queue: string, name: string]>>
}

/** The header of a page: the page starts after number `since`; `ends` has the number of each commit's last event. */
interface Head extends Omit<EventPage, 'events'> {
  readonly since: number
  readonly ends: readonly number[]
}

/** Decodes the answer of `events`. */
export function pageOf(text: string): EventPage {
  const [head, ...bodies] = text.split(FILE)
  const { last, gap, more, since, ends } = JSON.parse(head!) as Head
  const events: StoreEvent[] = []
  for (const [at, body] of bodies.entries()) {
    const drafts = eventsIn(body)
    const first = ends[at]! - drafts.length + 1
    for (const [n, event] of drafts.entries()) {
      if (first + n <= since) continue
      event.cursor = String(first + n)
      events.push(event)
    }
  }
  return { last, gap, more, events }
}

function eventsIn(body: string): EventDraft[] {
  return body.split(ROW).flatMap((part) => {
    return part.startsWith('{"many":') ? runIn(part) : [storedEvent(JSON.parse(part) as StoreEvent)]
  })
}

/** Decodes events stored together, as the SQL function `many_events` writes them. */
function runIn(part: string): EventDraft[] {
  const [head, ids, lane, attempts, results, chains] = part.split(GROUP) as [string, ...string[]]
  const { many, at, worker, of } = JSON.parse(head) as EventRun
  const each = (text: string | undefined, separator: string): readonly string[] => {
    return text === undefined || text === '' ? [] : text.split(separator)
  }
  const lanes = each(lane, ',')
  const attemptOf = each(attempts, ',')
  const resultOf = each(results, UNIT)
  const chainOf = each(chains, UNIT)
  return each(ids, UNIT).map((id, n) => {
    const [queue, name] = of[lanes[n] ?? lanes[0]!]!
    const event = draft(many, { id, queue, name }, at)
    event.worker = worker
    if (attemptOf[n] !== undefined) event.attempt = +attemptOf[n]
    event.result = resultOf[n] || undefined
    event.chain = chainOf[n] || undefined
    return event
  })
}
