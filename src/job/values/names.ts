// job/values/names.ts: checks names and ids, and suggests the intended one for a misspelt name.

import { MillraceError, quote } from '../errors/errors.js'
import { ourOption } from './peer-names.js'

/** The most characters (UTF-16 units) of a name or an id. */
export const MAX_NAME_LENGTH = 255

/** Control characters (C0, DEL, C1) and, because of the `u` flag, lone surrogates only. */
const unprintable = /[\p{Cc}\p{Cs}]/u

/**
 * Returns the value if it is a valid name, and throws otherwise. `what` begins the message, as in 'queue name'; where
 * it ends with 'id', as in 'job id', the code is INVALID_ID and otherwise INVALID_NAME. `longest` is the most characters
 * that it may have.
 */
export function checkName(value: unknown, what: string, longest = MAX_NAME_LENGTH): string {
  if (typeof value !== 'string') throw badName(value, what, 'it must be a string')
  if (value === '') throw badName(value, what, 'it must not be empty')
  if (value.length > longest) {
    throw badName(value, what, `it has ${value.length} characters, and ${longest} is the most`)
  }
  if (unprintable.test(value)) {
    throw badName(value, what, 'it must not hold control characters or lone surrogates')
  }
  return value
}

/** The prefix of the names of Millrace's own queues and the ids of its own jobs. */
export const RESERVED = 'millrace:'

/** Whether a queue or a job is one of Millrace's own. */
export function isReserved(name: string): boolean {
  return name.startsWith(RESERVED)
}

/** As `checkName`, for a queue name that a user chooses: some names are reserved for Millrace. */
export function checkOwnName(value: unknown, what: string): string {
  return refuseReserved(checkName(value, what), what, [RESERVED])
}

/**
 * The prefixes of ids that Millrace derives. A run of a schedule is identified by its id alone: a user's job with that
 * id would prevent it.
 */
export const RESERVED_IDS = [RESERVED, 'run:', 'schedule:'] as const

/** As `checkName`, for a job id that a user chooses: some ids are reserved for Millrace. */
export function checkOwnId(value: unknown, what: string): string {
  return refuseReserved(checkName(value, what), what, RESERVED_IDS)
}

/** The length of the ids that a runtime makes: UUIDs. */
const UUID_LENGTH = 36

/** Returns the value if it is a valid name of a worker: short enough to be part of an id, and not reserved. */
export function checkWorkerName(value: unknown): string {
  const name = checkName(value, 'worker name', MAX_NAME_LENGTH - UUID_LENGTH - 1)
  return refuseReserved(name, 'worker name', [RESERVED])
}

/**
 * The id of a worker: its name, if it has one, and a part that no other worker has. `identity` is what the ids of workers
 * begin with on its store.
 */
export function workerId(name: string | undefined, unique: string, identity = ''): string {
  return name === undefined ? `${identity}${unique}` : `${identity}${name}:${unique}`
}

/** The name in the id of a worker; undefined if it has none. */
export function workerNameIn(id: string): string | undefined {
  const end = id.length - UUID_LENGTH - 1
  return end > 0 && id[end] === ':' ? id.slice(0, end) : undefined
}

function refuseReserved(name: string, what: string, reserved: readonly string[]): string {
  const prefix = reserved.find((each) => name.startsWith(each))
  if (prefix === undefined) return name
  throw new MillraceError(
    'RESERVED_NAME',
    `${quote(name)} cannot be a ${what}: '${prefix}' begins those of Millrace's own; choose another`,
    { details: { what, value: name } },
  )
}

function badName(value: unknown, what: string, reason: string): MillraceError {
  const code = what.endsWith('id') ? 'INVALID_ID' : 'INVALID_NAME'
  return new MillraceError(code, `${quote(value)} cannot be a ${what}: ${reason}`, { details: { what, value } })
}

/** The known name that was probably intended: a few typing errors away, ignoring case. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  let best: string | undefined
  let least = Math.max(1, Math.floor(name.length / 3)) + 1
  for (const candidate of known) {
    if (Math.abs(candidate.length - name.length) >= least) continue
    const slips = distance(name.toLowerCase(), candidate.toLowerCase())
    if (slips < least) [best, least] = [candidate, slips]
  }
  return best
}

/** The edit distance: insertions, deletions, substitutions and swaps of neighbours between two texts. */
function distance(from: string, to: string): number {
  let before: number[] = []
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1]
      const swapped = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]
      next[j] = Math.min(
        row[j - 1]! + (same ? 0 : 1),
        row[j]! + 1,
        next[j - 1]! + 1,
        swapped ? before[j - 2]! + 1 : Infinity,
      )
    }
    before = row
    row = next
  }
  return row[to.length]!
}

/**
 * Throws for unknown options, so that a misspelt one, or the name that another queue has for it, is not silently ignored. A key that is set to undefined counts as
 * absent. `where` ends the message: "unknown option 'x' in queue.add options".
 */
export function refuseUnknown(options: object, known: readonly string[], where: string): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new MillraceError('INVALID_OPTION', `${where} must be an object, not ${quote(options)}`)
  }
  for (const option in options) {
    if (known.includes(option) || (options as Readonly<Record<string, unknown>>)[option] === undefined) continue
    const ours = ourOption(option)
    const meant = nearest(option, known)
    const hint =
      ours !== undefined
        ? `here it is ${ours}`
        : meant === undefined
          ? `it knows ${known.join(', ')}`
          : `did you mean '${meant}'?`
    throw new MillraceError('UNKNOWN_OPTION', `unknown option ${quote(option)} in ${where}; ${hint}`, {
      details: { option, where, meant },
    })
  }
}
