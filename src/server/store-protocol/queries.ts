// server/store-protocol/queries.ts: what a read of the store protocol may look like.
import { jobStates } from '../../job/job.js'
import { MAX_TAG_LENGTH, MAX_TAGS } from '../../job/values/tags.js'
import type { DetailsQuery, DueQuery, FailuresQuery, Query, TimeRange } from '../../store/store.js'
import type { TallyOptions } from '../../store/tally.js'
import type { TallyRequest } from '../../store/wire/wire.js'
import { flag, jsonText, list, maybe, name, named, object, oneOf, that, time, whole } from './checks.js'
import type { Check } from './checks.js'

/** The most ids of one read, and the most bytes that it may ask for. */
const MAX_IDS = 10_000
const MAX_BYTES = 2 ** 26

/** A text that need not be a name: cursors, prefixes, keys. */
const key: Check = that(
  (value) => typeof value === 'string' && value.length <= 1_024,
  'text of at most 1024 characters',
)

const range = object<TimeRange>({ from: maybe(time), to: maybe(time) })
const bytes = maybe(whole(1, MAX_BYTES))
const ids = list(name, MAX_IDS)
const tags = list(named(MAX_TAG_LENGTH), MAX_TAGS)

const find = object<Query>({
  queue: maybe(name),
  states: maybe(list(oneOf(...jobStates), 100)),
  names: maybe(list(name, 1_000)),
  chain: maybe(name),
  parent: maybe(name),
  group: maybe(name),
  kind: maybe(oneOf('job', 'schedule', 'signal')),
  tags: maybe(tags),
  anyTag: maybe(tags),
  worker: maybe(name),
  idPrefix: maybe(key),
  created: maybe(range),
  started: maybe(range),
  finished: maybe(range),
  errorCode: maybe(key),
  fingerprint: maybe(key),
  contains: maybe(list(list(jsonText, 1_000), 100)),
  cursor: maybe(key),
  order: maybe(oneOf('oldest', 'newest', 'finished')),
  limit: maybe(whole(0, 100_000)),
  count: maybe(oneOf(true)),
  bytes,
})

const details = object<DetailsQuery>({
  jobs: maybe(ids),
  parts: maybe(list(oneOf('edges', 'outcomes', 'dependents', 'logs', 'steps', 'related'), 6)),
  cells: maybe(list(key, MAX_IDS)),
  cellsUnder: maybe(key),
  cellsAfter: maybe(key),
  revokedFrom: maybe(ids),
  failures: maybe(object<FailuresQuery>({ queue: name, after: maybe(key), limit: whole(0, 100_000) })),
  logs: maybe(object({ after: maybe(whole(0)), limit: maybe(whole(0)) })),
  edges: maybe(object({ after: maybe(whole(-1)), limit: maybe(whole(1)) })),
  steps: maybe(object({ after: maybe(whole(-1)) })),
  bytes,
})

const tally = object<TallyRequest>({
  queues: maybe(list(name, MAX_IDS)),
  options: maybe(object<TallyOptions>({ heads: maybe(flag) })),
})

const due = object<DueQuery>({ queues: list(name, MAX_IDS), except: list(name, 100_000), limit: whole(0, 100_000) })

/** What each read asks. */
export const queries = { get: ids, find, details, tally, due } as const
