// The codec of receipts: every receipt reads back equal from its text, which holds no data of jobs.
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeReceipt, encodeReceipt } from '../../src/engine/receipts.js'
import type { JobKey, ReceiptReader } from '../../src/engine/receipts.js'
import { fenced, LANDED, refusedAt } from '../../src/engine/verdicts.js'
import { createRecord, givenOrder, moveRecord } from '../../src/job/apply.js'
import { move } from '../../src/job/change.js'
import type { Change, Insert } from '../../src/job/change.js'
import type { JobRecord } from '../../src/job/job.js'
import { claimed } from '../../src/job/lifecycle.js'
import { copyOf } from '../../src/job/record.js'
import type { Ask, Batch, Group, Receipt, Verdict } from '../../src/store/store.js'
import { asking, insert, LEASE, Mill } from '../stores/memory/table.making.js'
import { ask, planned, plans, renewal } from '../stores/memory/table.random.js'

const NOW = 1_000_000
const SECRET = 'secret'
const RELEASE: Change = { kind: 'release', chain: 'none', outcome: 'completed' }

/** A part of a batch with its answer, and the jobs that the store holds after it. */
interface Part<Asked, Answer> {
  readonly asked: Asked
  readonly answer: Answer
  readonly stored: readonly JobRecord[]
}

/** Ids must differ in the whole batch, so they are given last. */
type Plan<T> = (newId: () => string, fence: number) => T

const spec = fc.record({
  name: fc.constantFrom('grind', 'sift'),
  version: fc.constantFrom(1, 2),
  data: fc.constantFrom(undefined, `"${SECRET}"`),
  priority: fc.integer({ min: -2, max: 2 }),
  lifo: fc.boolean(),
  attempts: fc.constantFrom(1, 3, Infinity),
  run: fc.constantFrom(undefined, { in: 5 }, { at: 7 }, { at: NOW + 9 }),
  group: fc.constantFrom(undefined, 'g'),
  extras: fc.constantFrom(undefined, { trace: SECRET }),
  keep: fc.constantFrom(undefined, { completed: { deleteAfter: 0 } }),
})
/** Mostly numbers that follow each other; fair orders are any numbers. */
const ord = fc.oneof(
  { arbitrary: fc.integer({ min: -4, max: 4 }), weight: 4 },
  { arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => n + 0), weight: 1 },
)
const changedFields = fc.record(
  {
    state: fc.constantFrom('waiting', 'waiting-children', 'completed', 'cancelled'),
    pending: fc.nat(3),
    brokenAt: fc.constantFrom(undefined, NOW),
    runAt: fc.constantFrom(undefined, 3),
    fence: fc.nat(9),
    data: fc.constantFrom(undefined, `"${SECRET}-2"`),
    memo: fc.constant(`"${SECRET}-3"`),
    progress: fc.constant(`"${SECRET}-4"`),
    error: fc.constant({ name: 'Error', message: SECRET }),
    errors: fc.constant([{ name: 'Error', message: SECRET, fence: 0, attempt: 1, at: NOW }]),
    dedup: fc.constant({ key: 'k', window: 5 }),
  },
  { requiredKeys: [] },
)

const record = (spec: Insert, ord: number, fence: number): JobRecord =>
  createRecord(spec.job, undefined, givenOrder(ord), fence, NOW)

/** Groups whose jobs are exactly what their inserts create. */
const plainGroup = fc
  .array(fc.record({ spec, ord }), { minLength: 1, maxLength: 4 })
  .map((jobs): Plan<Part<Group, Verdict>> => (newId, fence) => {
    const asked = jobs.map((job) => insert(newId(), job.spec))
    const inserted = asked.map((each, at) => record(each, jobs[at]!.ord, fence))
    return { asked, answer: { ok: true, inserted }, stored: [] }
  })

/** Groups whose jobs were changed after they were inserted. */
const changedGroup = fc
  .array(fc.record({ spec, ord, over: changedFields }), { minLength: 1, maxLength: 3 })
  .map((jobs): Plan<Part<Group, Verdict>> => (newId, fence) => {
    const asked = jobs.map((job) => insert(newId(), job.spec))
    const inserted = asked.map((each, at): JobRecord => {
      return copyOf({ ...record(each, jobs[at]!.ord, fence), ...jobs[at]!.over })
    })
    return { asked: [...asked, RELEASE], answer: { ok: true, inserted }, stored: inserted }
  })

const landed = fc.constant<Plan<Part<Group, Verdict>>>(() => ({ asked: [RELEASE], answer: LANDED, stored: [] }))

const refusal = fc
  .record({
    change: fc.nat(3),
    why: fc.constantFrom('fence', 'duplicate', 'missing', 'broken', 'full', 'version', 'busy'),
    over: changedFields,
    of: fc.constantFrom('none', 'itself', 'another'),
    cell: fc.constantFrom(undefined, { key: 'c', value: '1', version: 2, at: NOW }),
  })
  .map(({ change, why, over, of, cell }): Plan<Part<Group, Verdict>> => (newId, fence) => {
    const id = newId()
    const job = copyOf({ ...record(insert(of === 'another' ? newId() : id), 1, fence), ...over })
    const asked = [RELEASE]
    if (of === 'none') {
      const answer: Verdict = { ok: false, change, why, id, ...(cell !== undefined && { cell }) }
      return { asked, answer, stored: [] }
    }
    const answer: Verdict = why === 'fence' ? refusedAt(change, fenced(job)) : { ok: false, change, why, id, job }
    return { asked, answer, stored: [job] }
  })

const group = fc.oneof(plainGroup, plainGroup, changedGroup, landed, refusal)
const verdictOfRenewal = fc.oneof(landed, refusal)

const HANDLES: Ask['handles'] = [
  { name: 'grind', versions: [1], lease: 10 },
  { name: 'grind', versions: [2], lease: 20 },
  { name: undefined, lease: LEASE },
]

/** Claims of jobs, some of which were settled since. */
const claims = fc
  .array(
    fc.record({
      spec,
      fence: fc.integer({ min: 0, max: 1 }),
      attempt: fc.integer({ min: 0, max: 1 }),
      ahead: fc.boolean(),
      settled: fc.boolean(),
    }),
    { maxLength: 6 },
  )
  .map((jobs): Plan<Part<Ask, readonly JobRecord[]>> => (newId) => {
    const answer: JobRecord[] = []
    const stored: JobRecord[] = []
    for (const { spec, fence, attempt, ahead, settled } of jobs) {
      const created = insert(newId(), { ...spec, run: undefined })
      const waiting = copyOf({ ...record(created, 1, fence), attempt })
      const lease = spec.name === 'sift' ? LEASE : 10 * spec.version
      const job = claimed(waiting, { worker: 'miller', lease, ahead, now: NOW })
      answer.push(job)
      const end = move(job, 'completed', { held: true, set: { result: `"${SECRET}"`, deleteIn: 5 } })
      stored.push(settled ? moveRecord(job, 'completed', end, 0, givenOrder(0), NOW + 1) : job)
    }
    return { asked: asking(9, { handles: HANDLES }), answer, stored }
  })

/** A random batch with a receipt of it. */
const answered = fc
  .record({
    fence: fc.nat(5),
    groups: fc.array(group, { maxLength: 8 }),
    renewals: fc.array(verdictOfRenewal, { maxLength: 4 }),
    asks: fc.array(claims, { maxLength: 2 }),
    again: fc.constantFrom(undefined, NOW + 5),
  })
  .map(({ fence, again, ...plan }) => {
    let ids = 0
    const newId = (): string => `j${ids++}`
    const groups = plan.groups.map((each) => each(newId, fence))
    const renewals = plan.renewals.map((each) => each(newId, fence))
    const asks = plan.asks.map((each) => each(newId, fence))
    const batch: Batch = {
      writer: 'w',
      seq: 7,
      groups: groups.map(({ asked }) => asked),
      renewals: renewals.map(() => ({ id: 'x', fence: 0, lease: LEASE, started: false })),
      asks: asks.map(({ asked }) => asked),
    }
    const receipt: Receipt = {
      writer: 'w',
      seq: 7,
      now: NOW,
      groups: groups.map(({ answer }) => answer),
      renewals: renewals.map(({ answer }) => answer),
      asks: asks.map(({ answer }) => answer),
      ...(again !== undefined && { again }),
    }
    const stored = new Map([...groups, ...renewals, ...asks].flatMap((part) => part.stored.map((job) => [job.id, job])))
    return { batch, receipt, fence, stored }
  })

/** Numbers of claimed jobs: those of the batch one after the other, with a gap now and then. */
function numbersOf({ asks }: Receipt): { keys: number[][]; idOf: Map<JobKey, string> } {
  const idOf = new Map<JobKey, string>()
  let next = 0
  const keys = asks.map((jobs) =>
    jobs.map(({ id }, at) => {
      next += at % 3 === 2 ? 2 : 1
      idOf.set(next, id)
      return next
    }),
  )
  return { keys, idOf }
}

function readerOf(stored: ReadonlyMap<string, JobRecord>, idOf?: ReadonlyMap<JobKey, string>): ReceiptReader {
  const record = (id: string): JobRecord | undefined => stored.get(id)
  return { record, header: record, claimed: (key) => record(idOf === undefined ? (key as string) : idOf.get(key)!) }
}

test('a receipt reads back equal, whether claimed jobs have ids or numbers, and its text holds no data of jobs', () => {
  fc.assert(
    fc.property(answered, ({ batch, receipt, fence, stored }) => {
      const byId = encodeReceipt(batch, receipt, fence)
      expect(decodeReceipt(byId, batch, readerOf(stored))).toEqual(receipt)
      const { keys, idOf } = numbersOf(receipt)
      const byNumber = encodeReceipt(batch, receipt, fence, keys)
      expect(decodeReceipt(byNumber, batch, readerOf(stored, idOf))).toEqual(receipt)
      expect(byId + byNumber).not.toContain(SECRET)
    }),
    { numRuns: 300 },
  )
})

test('a batch that is sent again for its claims alone gets them alone', () => {
  fc.assert(
    fc.property(answered, ({ batch, receipt, fence, stored }) => {
      const alone = { ...batch, groups: [], renewals: [] }
      const decoded = decodeReceipt(encodeReceipt(batch, receipt, fence), alone, readerOf(stored))
      expect(decoded).toEqual({ ...receipt, groups: [], renewals: [] })
    }),
    { numRuns: 100 },
  )
})

test('what is read does not depend on what was found, so that a store can load it beforehand', () => {
  fc.assert(
    fc.property(answered, ({ batch, receipt, fence, stored }) => {
      const text = encodeReceipt(batch, receipt, fence)
      const wanted = new Set<string>()
      const collect = (id: JobKey): undefined => void wanted.add(id as string)
      decodeReceipt(text, batch, { record: collect, header: collect, claimed: collect })
      const loaded = new Map([...stored].filter(([id]) => wanted.has(id)))
      expect(decodeReceipt(text, batch, readerOf(loaded))).toEqual(receipt)
    }),
    { numRuns: 100 },
  )
})

test('whatever the engine answers reads back equal, with jobs that caused a refusal as they are now', () => {
  const step = fc.record({ group: plans, renewal, ask, wait: fc.constantFrom(0, 7, 40_000) })
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 15 }), (steps) => {
      const mill = new Mill()
      const check = (parts: Partial<Pick<Batch, 'groups' | 'renewals' | 'asks'>>): void => {
        const { rows, highestFence } = mill.table
        const receipt = mill.commit(parts)
        const { writer, seq } = receipt
        const batch = { groups: [], renewals: [], asks: [], ...parts, writer, seq }
        const stored = new Map([...rows].map(([id, row]) => [id, copyOf(row.job)]))
        const decoded = decodeReceipt(encodeReceipt(batch, receipt, highestFence), batch, readerOf(stored))
        expect(decoded).toEqual(readAgain(receipt, decoded, stored))
      }
      for (const { group, renewal, ask, wait } of steps) {
        check({ groups: [planned(mill.table, group)] })
        check({ renewals: [renewal(mill.table)] })
        check({ asks: [ask] })
        mill.now += wait
      }
    }),
    { numRuns: 150 },
  )
})

/**
 * A receipt as it can be read again. The job that caused a refusal may have been changed or inserted by the refused group
 * itself, and is as it was before. Of a new job that its own group has removed again the payload is gone.
 */
function readAgain(receipt: Receipt, decoded: Receipt, stored: ReadonlyMap<string, JobRecord>): Receipt {
  const groups = receipt.groups.map((verdict, at): Verdict => {
    const found = decoded.groups[at]!
    if (!verdict.ok) {
      const { job, ...rest } = verdict
      const now = job && stored.get(job.id)
      if (now === undefined) return rest
      return rest.why === 'fence' ? refusedAt(rest.change, fenced(now)) : { ...rest, job: now }
    }
    const inserted = verdict.inserted.map((job, n) => {
      if (stored.has(job.id) || !found.ok) return job
      const { data, progress, memo, result, error, errors } = found.inserted[n]!
      return { ...job, data, progress, memo, result, error, errors }
    })
    return { ok: true, inserted }
  })
  return { ...receipt, groups }
}

test('many similar jobs, and claims of consecutive numbers, take one entry', () => {
  const ids = Array.from({ length: 500 }, (_, at) => `job-${at}`)
  const groups = ids.map((id) => [insert(id)])
  const jobs = groups.map(([each], at) => record(each!, 1_000_000 + at, 0))
  const batch = { writer: 'w', seq: 1, groups, renewals: [], asks: [asking(500)] }
  const claimedJobs = jobs.map((job) => claimed(job, { worker: 'miller', lease: LEASE, ahead: false, now: NOW }))
  const verdicts = jobs.map((job): Verdict => ({ ok: true, inserted: [job] }))
  const receipt = { writer: 'w', seq: 1, now: NOW, groups: verdicts, renewals: [], asks: [claimedJobs] }
  const keys = [ids.map((_, at) => 1_000_000 + at)]
  expect(encodeReceipt(batch, receipt, 0, keys).length).toBeLessThan(200)
})

test('a job that was removed since is left out of the claims, because no worker could settle it', () => {
  const mill = new Mill()
  mill.do(insert('a'), insert('b'))
  const batch = { writer: 'test', seq: 2, groups: [], renewals: [], asks: [asking(2)] }
  const receipt = mill.commit({ asks: batch.asks })
  const text = encodeReceipt(batch, receipt, 0)
  const stored = new Map([['b', mill.job('b')]])
  expect(decodeReceipt(text, batch, readerOf(stored)).asks).toEqual([receipt.asks[0]!.slice(1)])
})

test('a text that is not a receipt throws', () => {
  const batch = { writer: 'w', seq: 1, groups: [], renewals: [], asks: [] }
  for (const text of ['', '{"now":', 'null', '{}']) {
    expect(() => decodeReceipt(text, batch, readerOf(new Map())), text).toThrow()
  }
})
