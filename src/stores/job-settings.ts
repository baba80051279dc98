// stores/job-settings.ts: what a job carries besides its data, in one text; most jobs of a name carry the same.
import type { NewJob } from '../job/change.js'
import type { Extras, JobRecord, KeepByState, Millis } from '../job/job.js'
import type { Backoff } from '../job/retry.js'

/** What a job carries. */
export interface Carried {
  readonly backoff?: Backoff
  readonly timeout?: Millis
  readonly keep?: KeepByState
  readonly extras?: Extras
}

const NOTHING: Carried = Object.freeze({})

/** The text of what a job carries; nothing for most. */
export function settingsOf({ backoff, timeout, keep, extras }: Pick<JobRecord, keyof Carried>): string | null {
  if (backoff === undefined && timeout === undefined && keep === undefined && extras === undefined) return null
  return JSON.stringify({ backoff, timeout, keep, extras })
}

/** Whether two new jobs differ in no more than id, data, time and what links them to others. */
export function isAlike(a: NewJob, b: NewJob): boolean {
  return (
    a.name === b.name &&
    a.queue === b.queue &&
    a.version === b.version &&
    a.priority === b.priority &&
    a.lifo === b.lifo &&
    a.attempts === b.attempts &&
    a.timeout === b.timeout &&
    ((a.backoff === b.backoff && a.keep === b.keep && a.extras === b.extras) || settingsOf(a) === settingsOf(b))
  )
}

/** Settings by their texts, as far as they repeat; begins anew when there are many. */
export class Settings {
  readonly #known = new Map<string, Carried>()

  parse(text: string | null): Carried {
    if (text === null) return NOTHING
    let known = this.#known.get(text)
    if (known === undefined) {
      known = JSON.parse(text) as Carried
      if (this.#known.size >= 1_000) this.#known.clear()
      this.#known.set(text, known)
    }
    return known
  }
}
