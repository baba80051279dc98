// server/reading/search-terms.ts: the language of /v1/search: words of the form field:value.
import { jobStates } from '../../job/job.js'
import type { JobState } from '../../job/job.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import { nearest } from '../../job/values/names.js'
import type { JobFilter } from '../../queue/operations/filter.js'
import type { SearchValues } from '../../queue/operations/search.js'

/** What is searched for. */
export interface SearchTerms {
  /** In these queues; absent: in all. */
  readonly queues?: readonly string[]
  readonly filter: JobFilter
  /** Values in data and results, by path; absent: none. */
  readonly values?: SearchValues
}

const FIELDS = [
  'queue',
  'state',
  'name',
  'group',
  'tag',
  'schedule',
  'worker',
  'chain',
  'parent',
  'id',
  'error',
  'created',
  'started',
  'finished',
  'data.',
  'result.',
] as const

/** The most words of one search. */
const MOST_WORDS = 30

/** Words are separated by spaces; a value with spaces stands in quotes: `name:"send mail"`. */
const WORD = /([A-Za-z][\w.-]{0,254}):("(?:[^"\\]|\\["\\])*"|\S+)|("(?:[^"\\]|\\["\\])*"|\S+)/g

interface Found {
  readonly queues: string[]
  readonly states: JobState[]
  readonly names: string[]
  readonly tags: string[]
  readonly filter: Record<string, unknown>
  readonly values: [string, string | number | boolean | null][]
}

/** Reads a search. Throws INVALID_REQUEST for a word that it does not know. */
export function parseTerms(given: string): SearchTerms {
  const found: Found = { queues: [], states: [], names: [], tags: [], filter: {}, values: [] }
  let count = 0
  for (const [, field, value, bare] of given.matchAll(WORD)) {
    if (++count > MOST_WORDS) throw wrong(`a search has ${MOST_WORDS} words at most`)
    if (field === undefined) once(found, 'idPrefix', unquoted(bare!))
    else addTerm(found, field, value!)
  }
  const { queues, states, names, tags, filter, values } = found
  return {
    ...(queues.length > 0 && { queues }),
    filter: {
      ...(states.length > 0 && { state: states }),
      ...(names.length > 0 && { name: names }),
      ...(tags.length > 0 && { tags }),
      ...filter,
    },
    ...(values.length > 0 && { values: Object.fromEntries(values) }),
  }
}

function addTerm(found: Found, field: string, value: string): void {
  const plain = unquoted(value)
  if (/^(data|result)\../.test(field)) return void found.values.push([field, valueOf(value)])
  switch (field) {
    case 'queue':
      return void found.queues.push(plain)
    case 'state':
      return void found.states.push(...plain.split(',').map(stateOf))
    case 'name':
      return void found.names.push(plain)
    case 'tag':
      return void found.tags.push(plain)
    case 'group':
    case 'schedule':
    case 'worker':
    case 'chain':
    case 'parent':
      return once(found, field, plain)
    case 'id':
      return once(found, 'idPrefix', plain)
    case 'error':
      return once(found, 'error', /^[0-9a-f]{16}$/.test(plain) ? { fingerprint: plain } : { code: plain })
    case 'created':
    case 'started':
    case 'finished':
      return once(found, field, rangeOf(field, plain))
    default: {
      const near = nearest(field, FIELDS)
      throw wrong(
        `it has no field ${quote(field)}; ${near === undefined ? `it knows ${FIELDS.join(', ')}` : `did you mean '${near}'?`}`,
      )
    }
  }
}

function once(found: Found, field: string, value: unknown): void {
  if (Object.hasOwn(found.filter, field)) throw wrong(`${field === 'idPrefix' ? 'id' : field} is given twice`)
  found.filter[field] = value
}

function stateOf(given: string): JobState {
  const state = jobStates.find((each) => each === given)
  if (state !== undefined) return state
  throw wrong(`there is no state ${quote(given)}; states are ${jobStates.join(', ')}`)
}

/** `<1h`: less than an hour ago; `>1h`: longer ago; `2026-01-01..2026-02-01`. */
function rangeOf(field: string, given: string): object {
  const sign = given[0]
  if (sign === '<') return { from: given.slice(1) }
  if (sign === '>') return { to: given.slice(1) }
  const [from, to, ...more] = given.split('..')
  if (to === undefined || more.length > 0 || (from === '' && to === '')) {
    throw wrong(`${field} is written ${field}:<1h, ${field}:>1h or ${field}:2026-01-01..2026-02-01`)
  }
  return { ...(from !== '' && { from }), ...(to !== '' && { to }) }
}

/** A value in data: a number, true, false or null as JSON has them, text otherwise, and always in quotes. */
function valueOf(given: string): string | number | boolean | null {
  if (/^(true|false|null|-?\d{1,16}(\.\d{1,16})?)$/.test(given)) return JSON.parse(given) as number | boolean | null
  return unquoted(given)
}

function unquoted(given: string): string {
  return given.length >= 2 && given.startsWith('"') && given.endsWith('"')
    ? given.slice(1, -1).replace(/\\(["\\])/g, '$1')
    : given
}

function wrong(why: string): MillraceError {
  return new MillraceError('INVALID_REQUEST', `query.q is no search: ${why}.`, { details: { at: 'query.q' } })
}
