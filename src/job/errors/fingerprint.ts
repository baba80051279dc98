// job/errors/fingerprint.ts: which failures have one cause: those with the same name, code and first stack frame in the program.
import { placeOf } from './failure.js'
import { hashOf } from '../values/hash.js'
import type { ErrorInfo, JobRecord } from '../job.js'

/** The most characters of a message that tell errors apart which have neither a code nor a place. */
const MESSAGE_LENGTH = 100

/**
 * An error as it is recorded: with its fingerprint, which is equal for errors of the same name and code that were made at
 * the same place of the program. Without both a code and a place, the message decides, whatever numbers it holds.
 */
export function withFingerprint(error: ErrorInfo): ErrorInfo {
  return error.fingerprint === undefined ? { ...error, fingerprint: fingerprintOf(error) } : error
}

function fingerprintOf(error: ErrorInfo): string {
  const { name, code, message } = error
  const place = frameOf(error)
  const rest = code === undefined && place === undefined ? shapeOf(message) : undefined
  return hashOf(JSON.stringify([name, code, place, rest]))
}

/** The place of an error, as `folder/file.ts:line`: releases and machines differ in the folders above, builds in columns. */
function frameOf(error: ErrorInfo): string | undefined {
  const place = placeOf(error)
  return place === undefined ? undefined : /(?:[^\\/]*[\\/])?[^\\/]*$/.exec(place.replace(/:\d+$/, ''))?.[0]
}

/** A message without its numbers, ids among them. */
function shapeOf(message: string): string {
  return message.replaceAll(/\b(?=[\w-]*\d)[\w-]+\b/g, '#').slice(0, MESSAGE_LENGTH)
}

/** Whether a job is found by its last error: not one that completed after it. */
export function isFailing({ error, state }: Pick<JobRecord, 'error' | 'state'>): boolean {
  return error !== undefined && state !== 'completed'
}
