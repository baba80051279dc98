// server/store-protocol/changes.ts: what a batch may look like: every field of every change, with its type and its bounds.
// What it may do is decided by judge.ts.
import type {
  CellEvent,
  Insert,
  Move,
  MoveFields,
  NewEdge,
  NewJob,
  Note,
  NoteEvent,
  Put,
  Release,
} from '../../job/change.js'
import { LONGEST_HOLD } from '../../job/holds.js'
import type { NewHold } from '../../job/holds.js'
import { failurePolicies, finishedStates, jobStates, LOGS_KEPT } from '../../job/job.js'
import type { Dedup, Extras, Keep, KeepByState, StepResult, Webhook } from '../../job/job.js'
import { MAX_TAG_LENGTH, MAX_TAGS } from '../../job/values/tags.js'
import type { Ask, Batch, Handled, Renewal } from '../../store/batch.js'
import {
  byField,
  duration,
  emptied,
  flag,
  jsonText,
  list,
  maybe,
  name,
  named,
  number,
  object,
  oneOf,
  text,
  that,
  time,
  whole,
} from './checks.js'
import type { Check } from './checks.js'

/** The most changes of a batch, and the most of its renewals. */
const MAX_CHANGES = 10_000
/** The most jobs that one claim may want, those ahead included; and the most claims of a batch. */
const MAX_WANTED = 10_000
const MAX_ASKS = 1_000
/** The longest lease. */
const MAX_LEASE = 30 * 86_400_000
const MAX_PRIORITY = 2 ** 31 - 1
const MAX_TEXT = 2 ** 23

const fence: Check = whole(-1)

const when: Check = (value) =>
  typeof value === 'object' && value !== null && 'at' in value
    ? object<{ at: number }>({ at: time })(value)
    : object<{ in: number }>({ in: duration })(value)

const jitter = maybe(number(0, 1))

const backoff: Check = byField('type', {
  fixed: object({ type: oneOf('fixed'), delay: duration, jitter }),
  linear: object({ type: oneOf('linear'), delay: duration, max: maybe(duration), jitter }),
  exponential: object({
    type: oneOf('exponential'),
    delay: duration,
    factor: maybe(number(1, Number.MAX_VALUE)),
    max: maybe(duration),
    jitter,
  }),
  custom: object({ type: oneOf('custom'), name, delay: maybe(duration) }),
})

const keepOne = object<Keep>({
  staleAfter: maybe(duration),
  deleteAfter: maybe(duration),
  count: maybe(whole(0)),
  byQueue: maybe(oneOf(true)),
})

const keep = object<KeepByState>({ completed: maybe(keepOne), failed: maybe(keepOne), cancelled: maybe(keepOne) })

const webhook = object<Webhook>({
  url: that((value) => typeof value === 'string' && value.length <= 2_048 && URL.canParse(value), 'a URL'),
  on: list(oneOf(...finishedStates), finishedStates.length),
  attempts: whole(1),
  backoff: maybe(backoff),
  timeout: duration,
})

const extras = object<Extras>({
  phases: maybe(list(name, 1_000)),
  webhook: maybe(webhook),
  trace: maybe(named()),
  tags: maybe(list(named(MAX_TAG_LENGTH), MAX_TAGS)),
})

const dedup = object<Dedup>({ key: named(1_024), window: maybe(duration) })

const attempts = that(
  (value) => value === Infinity || (Number.isSafeInteger(value) && (value as number) >= 1),
  'a whole number from 1, or Infinity',
)

const priority = whole(-MAX_PRIORITY, MAX_PRIORITY)

const newJob = object<NewJob>({
  id: name,
  kind: oneOf('job', 'schedule', 'signal'),
  queue: name,
  name,
  version: whole(1),
  data: maybe(jsonText),
  state: oneOf('waiting', 'delayed', 'waiting-children'),
  priority,
  lifo: flag,
  attempts,
  backoff: maybe(backoff),
  timeout: maybe(duration),
  run: maybe(when),
  expires: maybe(when),
  chainId: name,
  chainIndex: whole(0),
  parentId: maybe(name),
  group: maybe(name),
  dedup: maybe(dedup),
  keep: maybe(keep),
  extras: maybe(extras),
})

const policies = failurePolicies.flatMap((policy) => [policy, `${policy}-all`])

const edges = list(object<NewEdge>({ on: name, policy: oneOf(...policies) }), MAX_CHANGES)

const insert = object<Insert>({ kind: oneOf('insert'), job: newJob, edges })

/** Errors hold errors; how deep is bounded by the depth of the body. */
const error: Check = (value) => errorFields(value)
const errorFields = object({
  name: text(MAX_TEXT),
  message: text(MAX_TEXT),
  code: maybe(text(MAX_TEXT)),
  fingerprint: maybe(text(256)),
  stack: maybe(text(MAX_TEXT)),
  cause: maybe(error),
  errors: maybe(list(error, 8)),
})

const set = object<MoveFields>({
  attempt: maybe(whole(0)),
  stalls: maybe(whole(0)),
  run: emptied(when),
  expires: emptied(when),
  data: emptied(jsonText),
  priority: maybe(priority),
  result: maybe(jsonText),
  error: emptied(error),
  memo: maybe(jsonText),
  staleIn: maybe(duration),
  deleteIn: maybe(duration),
  stale: maybe(oneOf(true)),
})

const move = object<Move>({
  kind: oneOf('move'),
  id: name,
  fence,
  to: oneOf(...jobStates, 'removed'),
  held: flag,
  reaps: maybe(oneOf(true)),
  place: oneOf('old', 'new'),
  why: maybe(oneOf('retrying', 'stalled', 'stale')),
  closesBroken: flag,
  waitsFor: maybe(edges),
  reopens: maybe(oneOf(true)),
  set,
  dropped: maybe(object({ queue: name, name })),
})

const step = object<StepResult>({
  name,
  result: maybe(jsonText),
  ran: maybe(duration),
  endedAt: maybe(time),
})

const noteEvent = object<NoteEvent>({
  type: oneOf('phase', 'webhook-delivered', 'webhook-failed', 'schedule-missed', 'operation-ended'),
  about: jsonText,
})

const note = object<Note>({
  kind: oneOf('note'),
  id: name,
  fence,
  held: flag,
  progress: maybe(jsonText),
  data: emptied(jsonText),
  logs: maybe(list(text(MAX_TEXT), 10 * LOGS_KEPT)),
  memo: maybe(jsonText),
  steps: maybe(list(step, MAX_CHANGES)),
  events: maybe(list(noteEvent, 1_000)),
  about: maybe(jsonText),
})

const release = object<Release>({ kind: oneOf('release'), chain: name, outcome: oneOf(...finishedStates) })

const cellEvent = object<CellEvent>({
  type: oneOf('paused', 'resumed', 'worker-started', 'worker-stopping', 'worker-stopped'),
  queue: name,
  name: maybe(name),
  worker: maybe(name),
})

const hold = object<NewHold>({
  name: maybe(name),
  group: maybe(name),
  for: number(0, LONGEST_HOLD),
  by: maybe(name),
  job: maybe(name),
})

const put = object<Put>({
  kind: oneOf('put'),
  key: named(1_024),
  value: maybe(jsonText),
  version: whole(0),
  events: list(cellEvent, 1_000),
  hold: maybe(hold),
})

/** One change, of the five kinds. */
const change: Check = byField('kind', { insert, move, note, release, put })

const lease = number(0, MAX_LEASE)

const renewal = object<Renewal>({ id: name, fence, lease, started: flag })

const handled = object<Handled>({
  name: maybe(name),
  versions: maybe(list(whole(0), 10_000)),
  lease,
})

const ask = object<Ask>({
  worker: name,
  queues: list(name, 10_000),
  handles: list(handled, 10_000),
  want: whole(0, MAX_WANTED),
  ahead: whole(0, MAX_WANTED),
})

/** A batch. */
export const batch: Check = object<Batch>({
  writer: named(200),
  seq: whole(1),
  groups: list(list(change, MAX_CHANGES), MAX_CHANGES),
  renewals: list(renewal, MAX_CHANGES),
  asks: list(ask, MAX_ASKS),
})
