// stores/event-pages.ts: how many events a store keeps for subscribers that resume, and how many it hands over at a time.
import { MillraceError } from '../job/errors.js'
import type { StoreEvent } from '../store/store.js'

/** Events that a ring keeps, and their bytes, unless its options say otherwise. */
export const RING_EVENTS = 10_000
export const RING_BYTES = 64 * 2 ** 20

/** Events read from a ring at a time, and their bytes, about: one event or commit that is larger is a page by itself. */
export const PAGE_EVENTS = 1_000
export const PAGE_BYTES = 2 ** 20

/** A piece of the stream. */
export interface EventPage {
  readonly events: readonly StoreEvent[]
  /** Events between the number asked for and the first one here are no longer held. */
  readonly gap: boolean
  /** The number to go on after. */
  readonly last: number
  /** There is more to read already. */
  readonly more: boolean
}

/** The number after which a reader resumes; -1, which is before every event, where it never was one. */
export function resumeAfter(cursor: string): number {
  return /^\d+$/.test(cursor) ? Number(cursor) : -1
}

/** About how many bytes an event takes. */
export function eventBytes({ id, name, queue, result, progress, about, error }: StoreEvent): number {
  const texts = (result?.length ?? 0) + (progress?.length ?? 0) + (about?.length ?? 0)
  const failure = error === undefined ? 0 : JSON.stringify(error).length
  return 100 + id.length + name.length + queue.length + texts + failure
}

/** Refuses a bound of a ring that none could go by. */
export function checkRing(store: string, bounds: Readonly<Record<'ring' | 'ringBytes', number>>): void {
  for (const [name, value] of Object.entries(bounds)) {
    if (Number.isSafeInteger(value) && value >= 1) continue
    throw new MillraceError(
      'INVALID_OPTION',
      `${store}: ${name} must be a whole number from 1 up, not ${String(value)}.`,
    )
  }
}
