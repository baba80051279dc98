// The codec of the port: whatever a store is asked, answers or fails with is the same at the other end.
import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import type { Arbitrary } from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Insert, Move, MoveFields, NewJob, Note, Put, Release } from '../../../src/job/change.js'
import { errorCatalogue } from '../../../src/job/errors/catalogue.js'
import { MillraceError } from '../../../src/job/errors/errors.js'
import type { ErrorCode } from '../../../src/job/errors/errors.js'
import type { StoreEvent } from '../../../src/job/events.js'
import type { AttemptError, Edge, ErrorInfo, JobHeader, JobRecord, LogLine, StepResult } from '../../../src/job/job.js'
import { recordFields } from '../../../src/job/record.js'
import { exactText, valueOf, valueOfParsed } from '../../../src/store/wire/exact-json.js'
import type { Ask, Batch, Cell, Handled, Receipt, Renewal } from '../../../src/store/batch.js'
import type { Details, DetailsQuery, Due, DueQuery, JobDetails, Notice, Page, Query } from '../../../src/store/store.js'
import type { Revoked, WatchOptions } from '../../../src/store/store.js'
import type { QueueHeads, QueueTally, TallyOptions } from '../../../src/store/tally.js'
import { failures, watching, wire } from '../../../src/store/wire/wire.js'
import type { Codec, TallyRequest } from '../../../src/store/wire/wire.js'

/** Fields by the arbitrary that makes them: one that is missing here is a type error. */
type Model<T> = { readonly [Key in keyof T]-?: Arbitrary<unknown> }

/** Objects of a type. A field that is `optional` is present, present and undefined, or absent. */
function objects<T extends object>(model: Model<T>, ...optional: readonly (keyof T)[]): Arbitrary<T> {
  const all = Object.entries<Arbitrary<unknown>>(model).map(([key, value]) => [
    key,
    optional.includes(key as keyof T) ? maybe(value) : value,
  ])
  const requiredKeys = Object.keys(model).filter((key) => !optional.includes(key as keyof T))
  return fc.record(Object.fromEntries(all) as never, { requiredKeys: requiredKeys as never }) as unknown as Arbitrary<T>
}

const text = fc.string({ unit: 'binary', maxLength: 12 })
const json = fc.oneof(fc.json({ maxDepth: 2 }), fc.constantFrom('"\u2028"', '"\\ud800"', '-0', '{"__proto__":1}'))
const number = fc.oneof(fc.integer(), fc.double(), fc.constantFrom(Infinity, -Infinity, -0, NaN))
const maybe = <T>(value: Arbitrary<T>): Arbitrary<T | undefined> => fc.option(value, { nil: undefined })
const nullable = <T>(value: Arbitrary<T>): Arbitrary<T | null> => fc.option(value, { nil: null })
const list = <T>(value: Arbitrary<T>): Arbitrary<readonly T[]> => fc.array(value, { maxLength: 3 })
const one = <const T>(...values: readonly T[]): Arbitrary<T> => fc.constantFrom(...values)
const flag = fc.boolean()
const state = one('waiting', 'delayed', 'waiting-children', 'active', 'completed', 'failed', 'cancelled')

const bareError = { name: text, message: text, code: text, fingerprint: text, stack: text }
const errorInfo = objects<ErrorInfo>(
  { ...bareError, cause: fc.record({ name: text, message: text }), errors: list(fc.record({ name: text })) },
  ...(['code', 'fingerprint', 'stack', 'cause', 'errors'] as const),
)
const attemptError = objects<AttemptError>(
  {
    ...{ ...bareError, cause: text, errors: text, fence: number, attempt: number, at: number },
    ...{ outcome: one('failed', 'stalled'), startedAt: number, worker: text, runAt: number },
  },
  ...(['code', 'fingerprint', 'stack', 'cause', 'errors', 'outcome', 'startedAt', 'worker', 'runAt'] as const),
)
const backoff = fc.record({ type: text, delay: number, max: number }, { requiredKeys: ['type'] })
const keep = fc.record({ failed: fc.record({ count: number }) }, { requiredKeys: [] })
const extras = fc.record({ phases: list(text), trace: text }, { requiredKeys: [] })
const when = fc.oneof(fc.record({ in: number }), fc.record({ at: number }))

/** The arbitrary of each field of a record; one that is new to the record is a type error here. */
const recordModel: Model<JobRecord> = {
  ...{ id: text, kind: one('job', 'schedule', 'signal'), queue: text, name: text, version: number, data: maybe(json) },
  ...{ state, priority: number, ord: number, fence: number, attempt: number, attempts: number },
  ...{ backoff: maybe(backoff), timeout: maybe(number), worker: maybe(text), runAt: maybe(number) },
  ...{ leaseUntil: maybe(number), brokenAt: maybe(number), staleAt: maybe(number), stale: flag },
  ...{ deleteAt: maybe(number), dueAt: maybe(number), chainId: text, chainIndex: number, parentId: maybe(text) },
  ...{ group: maybe(text), pending: number, stalls: number, ahead: flag, dedup: maybe(fc.record({ key: text })) },
  ...{ keep: maybe(keep), extras: maybe(extras), memo: maybe(json), progress: maybe(json), result: maybe(json) },
  ...{ error: maybe(errorInfo), errors: list(attemptError), createdAt: number, startedAt: maybe(number) },
  ...{ finishedAt: maybe(number), expiresAt: maybe(number), history: maybe(json) },
}
const record = objects<JobRecord>(recordModel)
const { data: _1, memo: _2, progress: _3, result: _4, error: _5, errors: _6, ...headerModel } = recordModel
const header = objects<JobHeader>(headerModel)
const moved = objects<JobHeader & { readonly error?: ErrorInfo }>({ ...headerModel, error: errorInfo }, 'error')

const newJob = objects<NewJob>(
  {
    ...{
      id: text,
      kind: one('job', 'schedule', 'signal'),
      queue: text,
      name: text,
      version: number,
      data: maybe(json),
    },
    ...{ state, priority: number, lifo: flag, attempts: number, backoff: maybe(backoff), timeout: maybe(number) },
    ...{ run: maybe(when), chainId: text, chainIndex: number, parentId: maybe(text), group: maybe(text) },
    ...{ dedup: maybe(fc.record({ key: text })), keep: maybe(keep), extras: maybe(extras), expires: maybe(when) },
  },
  'expires',
)
const newEdge = fc.record({ on: text, policy: one('fail', 'ignore-all') })
const moveFields = objects<MoveFields>(
  {
    ...{ attempt: number, stalls: number, run: nullable(when), data: nullable(json), priority: number, result: json },
    ...{ error: nullable(errorInfo), memo: json, staleIn: number, deleteIn: number, stale: one(true) },
    expires: nullable(when),
  },
  ...(['attempt', 'stalls', 'run', 'data', 'priority', 'result', 'error', 'memo', 'staleIn'] as const),
  ...(['deleteIn', 'stale', 'expires'] as const),
)
const change = fc.oneof(
  objects<Insert>({ kind: one('insert'), job: newJob, edges: list(newEdge) }),
  objects<Move>(
    {
      ...{
        kind: one('move'),
        id: text,
        fence: number,
        to: state,
        held: flag,
        reaps: one(true),
        place: one('old', 'new'),
      },
      ...{
        why: maybe(one('retrying')),
        closesBroken: flag,
        waitsFor: list(newEdge),
        reopens: one(true),
        set: moveFields,
        dropped: fc.record({ queue: text, name: text }),
      },
    },
    ...(['reaps', 'waitsFor', 'reopens'] as const),
  ),
  objects<Note>(
    {
      ...{ kind: one('note'), id: text, fence: number, held: flag, progress: json, data: nullable(json) },
      ...{ logs: list(text), memo: json, steps: list(fc.record({ name: text, result: maybe(json) })) },
      ...{ events: list(fc.record({ type: one('phase'), about: json })), about: json },
    },
    ...(['progress', 'data', 'logs', 'memo', 'steps', 'events', 'about'] as const),
  ),
  objects<Release>({ kind: one('release'), chain: text, outcome: one('completed', 'failed') }),
  objects<Put>(
    {
      kind: one('put'),
      key: text,
      value: maybe(json),
      version: number,
      events: list(fc.record({ queue: text })),
      hold: fc.record({ for: number, name: text, by: text }, { requiredKeys: ['for'] }),
    },
    'hold',
  ),
)
const renewal = objects<Renewal>({ id: text, fence: number, lease: number, started: flag })
const handled = objects<Handled>({ name: maybe(text), versions: list(number), lease: number }, 'versions')
const ask = objects<Ask>({ worker: text, queues: list(text), handles: list(handled), want: number, ahead: number })
const cell = objects<Cell>({ key: text, value: json, version: number, at: number })

const refusal = { ok: one(false), change: number, id: text, cell }
const verdict = fc.oneof(
  fc.record({ ok: one(true), inserted: list(record) }),
  fc.record({ ...refusal, why: one('fence'), job: maybe(moved) }, { requiredKeys: ['ok', 'change', 'id', 'why'] }),
  fc.record(
    { ...refusal, why: one('duplicate', 'missing', 'broken', 'full', 'version', 'busy'), job: maybe(record) },
    { requiredKeys: ['ok', 'change', 'id', 'why'] },
  ),
)

const edge = objects<Edge>({
  ...{ dependent: text, chain: text, name: text, policy: one('fail', 'remove'), state: one('open', 'broken') },
  ...{ result: maybe(json), error: maybe(errorInfo) },
})
const log = objects<LogLine>({ index: number, at: number, attempt: number, line: text })
const step = objects<StepResult>(
  { name: text, result: maybe(json), ran: number, endedAt: number },
  ...(['ran', 'endedAt'] as const),
)
const jobDetails = objects<JobDetails>(
  {
    ...{ id: text, edges: list(edge), dependents: list(edge), logs: list(log), steps: list(step), related: flag },
    more: fc.record({ edges: number, logs: number }, { requiredKeys: [] }),
    moreDependents: one(true),
  },
  'more',
  'moreDependents',
)
const names = fc.dictionary(fc.oneof(text, one('__proto__', 'constructor')), fc.dictionary(state, number))
const event = objects<StoreEvent>(
  {
    ...{ cursor: text, type: state, id: text, chain: text, queue: text, name: text, at: number, attempt: number },
    ...{ worker: text, runAt: number, result: json, progress: json, about: json, error: errorInfo },
  },
  ...(['chain', 'attempt', 'worker', 'runAt', 'result', 'progress', 'about', 'error'] as const),
)
const revoked = fc.record({ id: text, fence: number, worker: text, why: text }) as unknown as Arbitrary<Revoked>
const range = fc.record({ from: number, to: number }, { requiredKeys: [] })
const times = fc.dictionary(text, number)
const part = fc.record({ after: number, limit: number }, { requiredKeys: [] })

/** Checks that messages are the same at the other end, field by field, absent and undefined apart. */
function travels<T>({ encode, decode }: Codec<T>, messages: Arbitrary<T>): void {
  fc.assert(
    fc.property(messages, (message) => {
      const received = decode(encode(message))
      if (!isDeepStrictEqual(plain(received), plain(message))) expect(received).toStrictEqual(message)
    }),
    { numRuns: 150 },
  )
}

/** A copy without the null prototypes that fast-check uses. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  return new Map(Object.entries(value).map(([key, each]) => [key, plain(each)]))
}

describe('the codec gives back', () => {
  test('any plain data', () => {
    const values = [number, text, fc.constant(undefined), fc.constant(null), flag]
    const anything = fc.anything({ key: fc.oneof(text, one('__proto__')), values, withNullPrototype: false })
    travels({ encode: exactText, decode: valueOf, decodeParsed: valueOfParsed }, anything)
  })

  test('batches', () => {
    const batch = { writer: text, seq: number, groups: list(list(change)), renewals: list(renewal), asks: list(ask) }
    travels(wire.commit.request, objects<Batch>(batch))
  })

  test('receipts', () => {
    const receipt = { writer: text, seq: number, now: number, groups: list(verdict), renewals: list(verdict) }
    travels(wire.commit.answer, objects<Receipt>({ ...receipt, asks: list(list(record)), again: number }, 'again'))
  })

  test('ids and the jobs that there are', () => {
    travels(wire.get.request, list(text))
    travels(wire.get.answer, list(maybe(record)))
  })

  test('queries and their pages', () => {
    const query: Model<Query> = {
      ...{ queue: text, states: list(state), names: list(text), chain: text, parent: text, group: text },
      ...{ kind: one('job'), cursor: text, order: one('newest'), limit: number, bytes: number, count: one(true) },
      ...{ tags: list(text), anyTag: list(text), worker: text, idPrefix: text, created: range, started: range },
      ...{ finished: range, errorCode: text, fingerprint: text, contains: list(list(text)) },
    }
    travels(wire.find.request, objects<Query>(query, ...(Object.keys(query) as (keyof Query)[])))
    travels(
      wire.find.answer,
      objects<Page<JobRecord>>(
        { items: list(record), cursor: text, count: number, indexed: one(true) },
        'cursor',
        'count',
        'indexed',
      ),
    )
  })

  test('details', () => {
    const query: Model<DetailsQuery> = {
      ...{ jobs: list(text), parts: list(one('edges', 'logs')), cells: list(text), cellsUnder: text, cellsAfter: text },
      ...{ revokedFrom: list(text), logs: part, edges: part, steps: part, bytes: number },
      failures: fc.record({ queue: text, after: text, limit: number }, { requiredKeys: ['queue', 'limit'] }),
    }
    travels(wire.details.request, objects<DetailsQuery>(query, ...(Object.keys(query) as (keyof DetailsQuery)[])))
    const answer = {
      jobs: list(jobDetails),
      cells: list(cell),
      moreCells: text,
      revoked: list(fc.record({ id: text })),
      failures: list(fc.record({ fingerprint: text, count: number, more: flag, first: number, error: errorInfo })),
    }
    travels(wire.details.answer, objects<Details>(answer, 'moreCells', 'revoked', 'failures'))
  })

  test('tallies', () => {
    const options = objects<TallyOptions>({ heads: flag }, 'heads')
    travels(wire.tally.request, objects<TallyRequest>({ queues: maybe(list(text)), options: maybe(options) }))
    const lifetime = fc.record({ added: number, completed: number })
    const heads = objects<QueueHeads>(
      {
        ...{ now: number, waiting: times, running: times, groups: times, overdue: number, delayed: number },
        ...{ schedule: number, lease: number, rates: fc.dictionary(text, fc.record({ at: number })) },
      },
      ...(['overdue', 'delayed', 'schedule', 'lease'] as const),
    )
    const tally = { queue: text, names, leases: fc.dictionary(text, number), lifetime, heads }
    travels(wire.tally.answer, list(objects<QueueTally>(tally, 'heads')))
  })

  test('what is due', () => {
    travels(wire.due.request, objects<DueQuery>({ queues: list(text), except: list(text), limit: number }))
    travels(wire.due.answer, objects<Due>({ now: number, jobs: list(header), next: number }, 'next'))
  })

  test('watches and notices', () => {
    travels(watching.request, objects<WatchOptions>({ events: flag, from: text }, 'events', 'from'))
    const notice: Model<Notice> = {
      ...{ work: list(text), due: list(fc.record({ queue: text, at: number })), revoked: list(revoked) },
      ...{ missed: one(true), events: list(event), gap: flag },
      held: list(fc.record({ queue: text, until: number, name: text }, { requiredKeys: ['queue', 'until'] })),
    }
    travels(watching.notice, objects<Notice>(notice, 'missed', 'held'))
  })

  test('calls without arguments or answers', () => {
    for (const { request, answer } of [wire.open, wire.close]) {
      travels(request, fc.constant(undefined))
      travels(answer, fc.constant(undefined))
    }
  })
})

test('a job takes fewer bytes than as an object', () => {
  const [job] = fc.sample(record, { numRuns: 1, seed: 1 })
  const jobs = Array.from({ length: 100 }, () => job)
  expect(wire.get.answer.encode(jobs).length).toBeLessThan(
    JSON.stringify(jobs).length - 100 * Object.keys(recordFields).length,
  )
})

describe('an error', () => {
  const codes = Object.keys(errorCatalogue) as ErrorCode[]

  test('of this library keeps its class, code, message, details and stack', () => {
    const details = fc.dictionary(text, fc.oneof(text, number, flag, list(text)))
    fc.assert(
      fc.property(fc.constantFrom(...codes), text, details, (code, message, given) => {
        const error = new MillraceError(code, message, { details: given })
        const received = failures.decode(failures.encode(error)) as MillraceError
        expect(received).toBeInstanceOf(MillraceError)
        expect([received.name, received.code, received.message]).toEqual(['MillraceError', code, message])
        expect(plain(received.details)).toEqual(plain(given))
        expect(received.stack).toBe(error.stack)
      }),
    )
  })

  test('keeps its causes, with the codes of drivers', () => {
    const driver = Object.assign(new TypeError('database is locked'), { code: 'SQLITE_BUSY' })
    const error = new MillraceError('DATABASE_LOCKED', 'locked', { cause: new Error('outer', { cause: driver }) })
    const received = failures.decode(failures.encode(error)) as Error
    expect(received.cause).toMatchObject({ message: 'outer', cause: { name: 'TypeError', code: 'SQLITE_BUSY' } })
  })

  test('loses only what is no plain data', () => {
    const circular: Record<string, unknown> = { path: 'jobs.db', size: 5n, run: () => {} }
    circular['self'] = circular
    const error = new MillraceError('DATABASE_FAILED', 'failed', { details: circular })
    const received = failures.decode(failures.encode(error)) as MillraceError
    expect(received.details).toMatchObject({ path: 'jobs.db', size: '5', self: { path: 'jobs.db' } })
    expect(failures.decode(failures.encode('thrown text'))).toMatchObject({ message: 'thrown text' })
  })
})
