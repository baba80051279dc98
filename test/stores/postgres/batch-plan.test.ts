// What a batch comes to before it is sent: groups that can be written in one statement are one step, the others one each.
import { expect, test } from 'vitest'
import type { Insert } from '../../../src/job/change.js'
import type { JobRecord } from '../../../src/job/job.js'
import * as lifecycle from '../../../src/job/lifecycle.js'
import * as making from '../../../src/conformance/changes.js'
import type { JobOptions } from '../../../src/conformance/changes.js'
import type { Group } from '../../../src/store/store.js'
import { createRecord, givenOrder } from '../../../src/job/apply.js'
import { encodeGroups, encodeBody } from '../../../src/stores/postgres/encode.js'

let made = 0

const inserted = (options: JobOptions = {}): Insert => making.insert(`job ${++made}`, 'a', options)

/** A job as it stands, waiting or delayed. */
const standing = (options: JobOptions = {}): JobRecord =>
  createRecord(inserted(options).job, undefined, givenOrder(1), 0, 1_000)

/** A job that somebody holds. */
const running = (options: JobOptions = {}): JobRecord =>
  lifecycle.claimed(standing(options), { worker: 'w', lease: 1_000, ahead: false, now: 1_000 })

const steps = (...groups: readonly Group[]) =>
  encodeGroups(
    groups,
    () => ({ lane: 1, queue: 1 }),
    () => true,
  )
const kinds = (...groups: readonly Group[]): string =>
  steps(...groups)
    .map(({ k }) => k)
    .join('')
const sent = (...groups: readonly Group[]): readonly unknown[] =>
  (encodeBody({ lanes: [], s: steps(...groups) }) as { s: readonly unknown[] }).s

const kept = { keep: { completed: { staleAfter: 5, deleteAfter: 9 }, failed: { deleteAfter: 0 } } }

test('whatever holders do to their jobs is one step', () => {
  const groups = [
    making.complete(running()),
    making.complete(running({ dedup: { key: 'k' } }), { result: 1 }),
    making.complete(running(kept)),
    making.fail(running()),
    making.fail(running(kept)),
    making.failAndRetry(running(), 50),
    making.snooze(running(), 50),
    making.handBack(running()),
  ]
  expect(kinds(...groups)).toBe('m')
  expect(sent(...groups)).toMatchObject([
    { k: 'm', n: 0, v: 'cccfFrdw', at: ',,,,,,0,0', ri: ',,,,,50,50,', si: ',,5,,,,,', di: ',,9,,0,,,' },
  ])
})

test('completions with no more than a result are sent as every version takes them', () => {
  const [one, other] = [running(), running()]
  expect(sent(making.complete(one), making.complete(other, { result: 'x' }))).toEqual([
    { k: 'c', n: 0, id: `${one.id}\u001F${other.id}`, f: 1, r: '\u001F"x"' },
  ])
})

test('what others do to jobs that nobody holds is one step, and so are removals', () => {
  const delayed = standing({ run: { in: 10 } })
  expect(kinds(making.cancel(standing()), making.promote(delayed), making.cancel(standing(kept)))).toBe('m')
  expect(kinds(lifecycle.due(delayed, 5_000), lifecycle.due(standing({ run: { in: 20 } }), 5_000))).toBe('m')
  expect(kinds(making.remove(standing()), [...making.remove(standing())])).toBe('m')
  expect(kinds(making.cancel(standing()), making.remove(standing()), making.fail(running()))).toBe('mmm')
})

test('notes of holders are one step', () => {
  const groups = [making.note(running(), { progress: 5 }), making.note(running(), { logs: ['half', 'way'] })]
  expect(kinds(...groups)).toBe('n')
  expect(sent(...groups)).toMatchObject([{ k: 'n', r: '5\u001F', l: [[], ['half', 'way']] }])
})

test('new jobs with dedup keys are one step, in which each key counts once', () => {
  const keyed = ['k', 'l', 'k'].map((key) => [inserted({ dedup: { key } })])
  expect(steps(...keyed)).toMatchObject([{ k: 'd', n: [0, 1, 2], u: [0, 0, 1] }])
  expect(kinds([inserted()], keyed[0]!, [inserted()])).toBe('idi')
})

test('a job is in a step once: what follows for it comes after', () => {
  const job = running()
  expect(
    kinds(
      making.note(job, { progress: 1 }),
      making.note(running(), { progress: 1 }),
      making.note(job, { progress: 2 }),
    ),
  ).toBe('nn')
  expect(kinds(making.fail(job), making.fail(running()), making.fail(job))).toBe('mm')
})

test('what may be more than it looks is a step by itself', () => {
  const job = running()
  const broken = { ...standing(), state: 'waiting-children', brokenAt: 1, pending: 1 } as const
  const groups: readonly Group[] = [
    making.complete(job, { also: [inserted()] }),
    making.complete({ ...job, chainId: 'another' }),
    making.cancel(broken),
    making.retry({ ...standing(), state: 'failed' }),
    making.update(standing(), { data: '1' }),
    making.update(job, { data: '1' }),
    lifecycle.due({ ...job, leaseUntil: 1, dueAt: 1 }, 5_000),
    [lifecycle.lock(job, true)],
    [...making.remove(standing()), making.refusedChange()],
    [...making.fail(job), making.refusedChange()],
    [...making.handBack(job), making.refusedChange()],
    [...making.note(job, { progress: 1 }), making.refusedChange()],
    [inserted({ dedup: { key: 'k' }, after: ['somebody'] })],
    [making.put('plain', 1, 0)],
  ]
  expect(kinds(...groups)).toBe('g'.repeat(groups.length))
})
