// store/wire/wire.ts: the codec of the port: what a store is asked and answers, as text. It is exact, so that a store behind a
// thread or a server is the same store.
import type { Change, Insert, Move, NewJob } from '../../job/change.js'
import { MillraceError, isInstance, isMillraceError } from '../../job/errors/errors.js'
import type { ErrorCode } from '../../job/errors/errors.js'
import type { JobHeader, JobRecord, MovedJob } from '../../job/job.js'
import { recordFields } from '../../job/record.js'
import type { Batch, Receipt, Verdict } from '../batch.js'
import { exactText, valueOf, valueOfParsed } from './exact-json.js'
import type { Details, DetailsQuery, Due, DueQuery, Notice, Page, Query, WatchOptions } from '../store.js'
import type { QueueTally, TallyOptions } from '../tally.js'
import { tuplesOf } from './tuples.js'

/** One kind of message as text, and back. */
export interface Codec<T> {
  encode(value: T): string
  decode(text: string): T
  /** The same of a text that was parsed as JSON; that is used up. */
  decodeParsed(parsed: unknown): T
}

const { data, memo, progress, result, error, errors, ...headerFields } = recordFields
const record = tuplesOf<JobRecord>({ ...headerFields, data, memo, progress, result, error, errors })
const header = tuplesOf<JobHeader>(headerFields)
const moved = tuplesOf<MovedJob>({ ...headerFields, error })

const newJob = tuplesOf<NewJob>({
  id: true,
  kind: true,
  queue: true,
  name: true,
  version: true,
  data: true,
  state: true,
  priority: true,
  lifo: true,
  attempts: true,
  backoff: true,
  timeout: true,
  run: true,
  expires: true,
  chainId: true,
  chainIndex: true,
  parentId: true,
  group: true,
  dedup: true,
  keep: true,
  extras: true,
})

const move = tuplesOf<Move>({
  kind: true,
  id: true,
  fence: true,
  to: true,
  held: true,
  reaps: true,
  place: true,
  why: true,
  closesBroken: true,
  waitsFor: true,
  reopens: true,
  set: true,
  dropped: true,
})

/** A change on its way: an insert or a move as tuple, the others as they are. */
type SentChange =
  | { readonly i: readonly unknown[]; readonly e: Insert['edges'] }
  | { readonly m: readonly unknown[] }
  | { readonly c: Change }

function sentChange(change: Change): SentChange {
  if (change.kind === 'insert') return { i: newJob.toTuple(change.job), e: change.edges }
  return change.kind === 'move' ? { m: move.toTuple(change) } : { c: change }
}

function changeOf(sent: SentChange): Change {
  if ('i' in sent) return { kind: 'insert', job: newJob.fromTuple(sent.i), edges: sent.e }
  return 'm' in sent ? move.fromTuple(sent.m) : sent.c
}

/** How many fields the tuples of inserts and moves have: one with more comes from a later protocol. */
export const sentFields = { insert: newJob.length, move: move.length } as const

/** Replaces a field of an object, in its place. */
type With<T, Key extends keyof T, Value> = { readonly [Each in keyof T]: Each extends Key ? Value : T[Each] }

type SentBatch = With<Batch, 'groups', readonly (readonly SentChange[])[]>

/** A verdict on its way: `l` are the jobs of one that landed, `j` and `m` the job of a refusal. */
type SentVerdict = { readonly l: readonly (readonly unknown[])[] } | SentRefusal

interface SentRefusal {
  readonly r: object
  readonly j?: readonly unknown[]
  readonly m?: readonly unknown[]
}

function sentVerdict(verdict: Verdict): SentVerdict {
  if (verdict.ok) return { l: verdict.inserted.map(record.toTuple) }
  if (verdict.job === undefined) return { r: verdict }
  const { job, ...rest } = verdict
  return verdict.why === 'fence'
    ? { r: rest, m: moved.toTuple(verdict.job) }
    : { r: rest, j: record.toTuple(job as JobRecord) }
}

function verdictOf(sent: SentVerdict): Verdict {
  if ('l' in sent) return { ok: true, inserted: sent.l.map(record.fromTuple) }
  const { r, j, m } = sent
  const job = m === undefined ? j && record.fromTuple(j) : moved.fromTuple(m)
  return (job === undefined ? r : { ...r, job }) as Verdict
}

type SentReceipt = Omit<Receipt, 'groups' | 'renewals' | 'asks'> & {
  readonly groups: readonly SentVerdict[]
  readonly renewals: readonly SentVerdict[]
  readonly asks: readonly (readonly (readonly unknown[])[])[]
}

function codec<T, Sent>(out: (value: T) => Sent, back: (sent: Sent) => T): Codec<T> {
  return {
    encode: (value) => exactText(out(value)),
    decode: (text) => back(valueOf(text) as Sent),
    decodeParsed: (parsed) => back(valueOfParsed(parsed) as Sent),
  }
}

/** For what travels as it is. */
function plain<T>(): Codec<T> {
  return {
    encode: exactText,
    decode: (text) => valueOf(text) as T,
    decodeParsed: (parsed) => valueOfParsed(parsed) as T,
  }
}

const nothing = plain<undefined>()

/** The arguments of `tally`. */
export interface TallyRequest {
  readonly queues: readonly string[] | undefined
  readonly options: TallyOptions | undefined
}

/** What each call of the port sends, and what it answers. */
export const wire = {
  open: { request: nothing, answer: nothing },
  close: { request: nothing, answer: nothing },
  commit: {
    request: codec<Batch, SentBatch>(
      (batch) => ({ ...batch, groups: batch.groups.map((group) => group.map(sentChange)) }),
      (sent) => ({ ...sent, groups: sent.groups.map((group) => group.map(changeOf)) }),
    ),
    answer: codec<Receipt, SentReceipt>(
      (receipt) => ({
        ...receipt,
        groups: receipt.groups.map(sentVerdict),
        renewals: receipt.renewals.map(sentVerdict),
        asks: receipt.asks.map((jobs) => jobs.map(record.toTuple)),
      }),
      (sent) => ({
        ...sent,
        groups: sent.groups.map(verdictOf),
        renewals: sent.renewals.map(verdictOf),
        asks: sent.asks.map((jobs) => jobs.map(record.fromTuple)),
      }),
    ),
  },
  get: {
    request: plain<readonly string[]>(),
    answer: codec<readonly (JobRecord | undefined)[], readonly (readonly unknown[] | null)[]>(
      (jobs) => jobs.map((job) => (job === undefined ? null : record.toTuple(job))),
      (sent) => sent.map((job) => (job === null ? undefined : record.fromTuple(job))),
    ),
  },
  find: {
    request: plain<Query>(),
    answer: codec<Page<JobRecord>, Page<readonly unknown[]>>(
      (page) => ({ ...page, items: page.items.map(record.toTuple) }),
      (sent) => ({ ...sent, items: sent.items.map(record.fromTuple) }),
    ),
  },
  details: { request: plain<DetailsQuery>(), answer: plain<Details>() },
  tally: { request: plain<TallyRequest>(), answer: plain<readonly QueueTally[]>() },
  due: {
    request: plain<DueQuery>(),
    answer: codec<Due, With<Due, 'jobs', readonly (readonly unknown[])[]>>(
      (due) => ({ ...due, jobs: due.jobs.map(header.toTuple) }),
      (sent) => ({ ...sent, jobs: sent.jobs.map(header.fromTuple) }),
    ),
  },
} as const

/** What a watcher asks for, and what it is sent. */
export const watching: { readonly request: Codec<WatchOptions>; readonly notice: Codec<Notice> } = {
  request: plain(),
  notice: plain(),
}

/** An error on its way. */
interface SentError {
  readonly millrace: boolean
  readonly name: string
  readonly message: string
  readonly stack?: string
  readonly code?: string | number
  readonly details?: Readonly<Record<string, unknown>>
  readonly cause?: SentError
}

/** How many causes of causes travel. */
const CAUSES = 5

/** Errors, by code with their details. What is no plain data in them does not travel. */
export const failures: Codec<unknown> = codec<unknown, SentError>((thrown) => sentError(thrown, CAUSES), errorOf)

function sentError(thrown: unknown, causes: number): SentError {
  if (!isInstance(thrown, Error)) return { millrace: false, name: 'Error', message: String(thrown) }
  const { name, message, stack, cause } = thrown
  const { code, details } = thrown as { readonly code?: unknown; readonly details?: Readonly<Record<string, unknown>> }
  const millrace = isMillraceError(thrown)
  return {
    millrace,
    name,
    message,
    ...(stack !== undefined && { stack }),
    ...((typeof code === 'string' || typeof code === 'number') && { code }),
    ...(millrace && details !== undefined && { details: plainly(details) as SentError['details'] & object }),
    ...(cause !== undefined && causes > 0 && { cause: sentError(cause, causes - 1) }),
  }
}

function errorOf({ millrace, name, message, stack, code, details, cause: sent }: SentError): Error {
  const cause = sent && errorOf(sent)
  const error = millrace
    ? new MillraceError(code as ErrorCode, message, { cause, ...(details !== undefined && { details }) })
    : Object.assign(new Error(message, cause && { cause }), code !== undefined && { code })
  for (const [key, value] of [
    ['name', millrace ? undefined : name],
    ['stack', stack],
  ] as const) {
    if (value !== undefined) Object.defineProperty(error, key, { value, writable: true, configurable: true })
  }
  return error
}

/** How deep details travel: they are small, and may hold anything. */
const DEPTH = 8

/** The plain data of a value. */
function plainly(value: unknown, depth = DEPTH): unknown {
  if (typeof value === 'bigint') return String(value)
  if (typeof value !== 'object' || value === null) {
    return typeof value === 'function' || typeof value === 'symbol' ? undefined : value
  }
  if (depth === 0) return undefined
  if (Array.isArray(value)) return value.map((each) => plainly(each, depth - 1))
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plainly(each, depth - 1)]))
}
