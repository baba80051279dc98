// stores/event-pages.ts: how many events a store keeps for subscribers that resume, and how many it reads at a time.
import { MillraceError } from '../job/errors/errors.js'
import type { StoreEvent } from '../job/events.js'

/** Default size of a ring, in events and in bytes. */
export const RING_EVENTS = 10_000
export const RING_BYTES = 64 * 2 ** 20

/** Approximate size of a page read from a ring, in events and in bytes. A larger event or commit is a page by itself. */
export const PAGE_EVENTS = 1_000
export const PAGE_BYTES = 2 ** 20

/** A page of the event stream. */
export interface EventPage {
  readonly events: readonly StoreEvent[]
  /** Events between the number asked for and the first one here are no longer kept. */
  readonly gap: boolean
  /** The number after which the next page starts. */
  readonly last: number
  /** More events can be read already. */
  readonly more: boolean
}

/** The number after which a reader resumes; -1, which is before every event, for an invalid cursor. */
export function resumeAfter(cursor: string): number {
  return /^\d+$/.test(cursor) ? Number(cursor) : -1
}

/** The approximate size of an event in bytes. */
export function eventBytes({ id, name, queue, result, progress, about, error }: StoreEvent): number {
  const texts = (result?.length ?? 0) + (progress?.length ?? 0) + (about?.length ?? 0)
  const failure = error === undefined ? 0 : JSON.stringify(error).length
  return 100 + id.length + name.length + queue.length + texts + failure
}

/** Throws `INVALID_OPTION` unless each bound of a ring is a whole number from 1 up. */
export function checkRing(store: string, bounds: Readonly<Record<'ring' | 'ringBytes', number>>): void {
  for (const [name, value] of Object.entries(bounds)) {
    if (Number.isSafeInteger(value) && value >= 1) continue
    throw new MillraceError(
      'INVALID_OPTION',
      `${store}: ${name} must be a whole number from 1 up, not ${String(value)}.`,
    )
  }
}
