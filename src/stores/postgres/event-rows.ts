// stores/postgres/event-rows.ts: events as commits have written them: those alike together, the others one by one.
import type { StoreEvent, StoreEventType } from '../../store/store.js'
import { draft, storedEvent } from '../event-drafts.js'
import type { EventDraft } from '../event-drafts.js'
import type { EventPage } from '../event-pages.js'
import { FILE, GROUP, ROW, UNIT } from './rows.js'

/** What many events have in common; `of` are queues and names by the numbers of lanes. */
interface Crowd {
  readonly many: StoreEventType
  readonly at: number
  readonly worker?: string
  readonly of: Readonly<Record<string, readonly [queue: string, name: string]>>
}

/** What precedes the events of a page: `since` is the number it begins after, `ends` are those of the last event of each commit. */
interface Head extends Omit<EventPage, 'events'> {
  readonly since: number
  readonly ends: readonly number[]
}

/** What `events_v3` answers. */
export function pageOf(text: string): EventPage {
  const [head, ...bodies] = text.split(FILE)
  const { last, gap, more, since, ends } = JSON.parse(head!) as Head
  const events: StoreEvent[] = []
  for (const [at, body] of bodies.entries()) {
    const told = eventsIn(body)
    const first = ends[at]! - told.length + 1
    for (const [n, event] of told.entries()) {
      if (first + n <= since) continue
      event.cursor = String(first + n)
      events.push(event)
    }
  }
  return { last, gap, more, events }
}

function eventsIn(body: string): EventDraft[] {
  if (body.startsWith('[')) return (JSON.parse(body) as StoreEvent[]).map(storedEvent) // of a version before
  return body.split(ROW).flatMap((part) => {
    return part.startsWith('{"many":') ? crowdIn(part) : [storedEvent(JSON.parse(part) as StoreEvent)]
  })
}

/** The events of a crowd, as `crowd` in sql/quick.ts writes them. */
function crowdIn(part: string): EventDraft[] {
  const [head, ids, lane, attempts, results, chains] = part.split(GROUP) as [string, ...string[]]
  const { many, at, worker, of } = JSON.parse(head) as Crowd
  const each = (text: string | undefined, separator: string): readonly string[] => {
    return text === undefined || text === '' ? [] : text.split(separator)
  }
  const lanes = each(lane, ',')
  const tries = each(attempts, ',')
  const came = each(results, UNIT)
  const within = each(chains, UNIT)
  return each(ids, UNIT).map((id, n) => {
    const [queue, name] = of[lanes[n] ?? lanes[0]!]!
    const event = draft(many, { id, queue, name }, at)
    event.worker = worker
    if (tries[n] !== undefined) event.attempt = +tries[n]
    event.result = came[n] || undefined
    event.chain = within[n] || undefined
    return event
  })
}
