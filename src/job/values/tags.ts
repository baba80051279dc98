// job/values/tags.ts: the tags of a job: short texts to find it by.
import { MillraceError, quote } from '../errors/errors.js'
import type { JobRecord } from '../job.js'
import { checkName } from './names.js'

/** The most tags of one job. */
export const MAX_TAGS = 10

/** The most characters of one tag. */
export const MAX_TAG_LENGTH = 64

const NO_TAGS: readonly string[] = Object.freeze([])

/** Returns a list of tags if it is valid; an empty one is `undefined`. `field` begins the message. */
export function checkTags(tags: unknown, field: string): readonly string[] | undefined {
  if (!Array.isArray(tags)) throw badTags(field, `must be a list such as ['user:7', 'import'], not ${quote(tags)}`)
  if (tags.length > MAX_TAGS) throw badTags(field, `has ${tags.length} tags, and ${MAX_TAGS} is the most`)
  const checked = tags.map((tag) => checkTag(tag, field))
  const twice = checked.find((tag, at) => checked.indexOf(tag) !== at)
  if (twice !== undefined) throw badTags(field, `has the tag ${quote(twice)} twice`)
  return checked.length === 0 ? undefined : Object.freeze(checked)
}

/** Returns one tag if it is valid. */
export function checkTag(tag: unknown, field: string): string {
  try {
    return checkName(tag, 'tag', MAX_TAG_LENGTH)
  } catch (error) {
    throw badTags(field, `has a tag that cannot be used: ${(error as Error).message}`)
  }
}

/** The tags under which stores list a row: those of jobs, and none of a schedule, which passes its tags on to its runs. */
export function tagsOf({ kind, extras }: Pick<JobRecord, 'kind' | 'extras'>): readonly string[] {
  return extras?.tags === undefined || kind !== 'job' ? NO_TAGS : extras.tags
}

function badTags(field: string, what: string): MillraceError {
  return new MillraceError('INVALID_TAGS', `${field} ${what}.`)
}
