// stores/job-settings.ts: encodes the settings of a job as one JSON text; most jobs of a name have the same.
import type { NewJob } from '../job/change.js'
import type { Extras, JobRecord, KeepByState, Millis } from '../job/job.js'
import type { Backoff } from '../job/retry.js'

/** The settings of a job. */
export interface JobSettings {
  readonly backoff?: Backoff
  readonly timeout?: Millis
  readonly keep?: KeepByState
  readonly extras?: Extras
}

const NO_SETTINGS: JobSettings = Object.freeze({})

/** The settings of a job as JSON; null for none, as for most jobs. */
export function settingsOf({ backoff, timeout, keep, extras }: Pick<JobRecord, keyof JobSettings>): string | null {
  if (backoff === undefined && timeout === undefined && keep === undefined && extras === undefined) return null
  return JSON.stringify({ backoff, timeout, keep, extras })
}

/** Whether two new jobs differ only in id, data, time, and links to other jobs. */
export function hasEqualSettings(a: NewJob, b: NewJob): boolean {
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

/** A cache of parsed settings by their text; cleared when it grows large. */
export class SettingsCache {
  readonly #known = new Map<string, JobSettings>()

  parse(text: string | null): JobSettings {
    if (text === null) return NO_SETTINGS
    let known = this.#known.get(text)
    if (known === undefined) {
      known = JSON.parse(text) as JobSettings
      if (this.#known.size >= 1_000) this.#known.clear()
      this.#known.set(text, known)
    }
    return known
  }
}
