// What the memo of a job records of its phases, and what users see of that.
import { expect, test } from 'vitest'
import type { JobRecord } from '../../src/job/job.js'
import { memoOf, writeMemo } from '../../src/job/memo.js'
import {
  begun,
  completed,
  failed,
  leftOpen,
  overall,
  overallOf,
  phasesOf,
  progressed,
  resumed,
} from '../../src/job/phases.js'
import type { Phases } from '../../src/job/phases.js'
import { record } from './lifecycle.records.js'

const names = ['a', 'b', 'c']
const error = { name: 'Error', message: 'no', stack: 'long' }

/** A job with the phases given, in a state. */
function job(phases: Phases | undefined, over: Partial<JobRecord> = {}): JobRecord {
  return record({ extras: { phases: names }, memo: phases && writeMemo({ phases }), attempt: 1, ...over })
}

function statuses(each: JobRecord): string {
  return Object.values(phasesOf(each))
    .map(({ status }) => status)
    .join(' ')
}

const fresh = resumed(record({ attempt: 1 }), names)
const inB = begun(completed(begun(fresh, 'a', 0), 'a', '1'), 'b', 0)

test('overall progress follows from the index and the progress of a phase', () => {
  expect([overall(0, 3, 50), overall(1, 3, 25), overall(2, 3, 80)]).toEqual([17, 42, 93])
  expect([overall(0, 1, 0), overall(0, 1, 100), overall(2, 3, 100), overall(1, 2, 0.4)]).toEqual([0, 100, 100, 50])
  expect(overallOf(job(undefined))).toBe(0)
  expect(overallOf(job(progressed(inB, 'b', 25), { state: 'active' }))).toBe(42)
  expect(overallOf(job(inB, { state: 'cancelled' }))).toBe(33)
})

test('what a phase is depends on the state of its job', () => {
  expect(statuses(job(undefined, { state: 'waiting' }))).toBe('pending pending pending')
  expect(statuses(job(inB, { state: 'active' }))).toBe('completed active pending')
  expect(statuses(job(inB, { state: 'waiting' }))).toBe('completed pending pending') // handed back, or stalled
  expect(statuses(job(inB, { state: 'failed' }))).toBe('completed failed cancelled') // exhausted
  expect(statuses(job(inB, { state: 'cancelled' }))).toBe('completed cancelled cancelled')
  expect(statuses(job(inB, { state: 'completed' }))).toBe('completed cancelled cancelled') // by another hand
  const inC = begun(completed(inB, 'b', '2'), 'c', 0)
  expect(statuses(job(inC, { state: 'completed', worker: 'w' }))).toBe('completed completed completed') // nothing more is written
  expect(statuses(job(inC, { state: 'completed' }))).toBe('completed completed cancelled') // by another hand
  const left = record({ state: 'completed', worker: 'w', memo: leftOpen(job(inC, { state: 'active' })) })
  expect(statuses(left)).toBe('completed completed cancelled') // by its worker, without the phase
  expect(leftOpen(job(inB, { state: 'active' }))).toBeUndefined()
  const stumbled = failed(inB, 'b', error)
  expect(statuses(job(stumbled, { state: 'delayed' }))).toBe('completed failed pending')
  expect(statuses(job(stumbled, { state: 'failed' }))).toBe('completed failed cancelled')
  expect(statuses(job(stumbled, { state: 'cancelled' }))).toBe('completed cancelled cancelled')
  expect(phasesOf(record())).toEqual({})
})

test('results and errors are shown where they belong', () => {
  const all = completed(completed(inB, 'b', undefined), 'c', undefined)
  const done = job(all, { state: 'completed', result: '{"the":"result"}' })
  expect(phasesOf(done)).toEqual({
    a: { status: 'completed', progress: 100, result: 1 },
    b: { status: 'completed', progress: 100 },
    c: { status: 'completed', progress: 100, result: { the: 'result' } },
  })
  const exhausted = job(inB, { state: 'failed', error })
  expect(phasesOf(exhausted)['b']).toEqual({ status: 'failed', progress: 0, error: { name: 'Error', message: 'no' } })
})

test('an attempt goes on with those that have not completed', () => {
  const { phases } = memoOf(job(progressed(failed(inB, 'b', error), 'b', 50)))
  const next = resumed(job(phases, { attempt: 2 }), names)
  expect(next).toEqual({
    a: { status: 'completed', result: '1' },
    b: { status: 'pending', failures: 1 },
    c: { status: 'pending' },
  })
  expect(begun(next, 'b', 2)['b']).toEqual({ status: 'active', failures: 1, stalls: 2 })
  expect(failed(begun(next, 'b', 0), 'b', error)['b']).toMatchObject({ failures: 2 })
  expect(Object.keys(resumed(job(phases), ['c', 'a', 'new']))).toEqual(['c', 'a', 'new'])
})

test('a try that was cut off counts as a failure, one that was handed back does not', () => {
  const failures = (stalls: number, attempt: number): number | undefined =>
    resumed(job(begun(fresh, 'a', 1), { stalls, attempt }), names)['a']!.failures
  expect(failures(2, 3)).toBe(1)
  expect(failures(1, 3)).toBeUndefined()
})

test('a retry by hand counts failures anew', () => {
  const often = failed(failed(failed(inB, 'b', error), 'b', error), 'b', error)
  expect(resumed(job(often, { attempt: 1 }), names)['b']).toEqual({ status: 'pending' })
  expect(resumed(job(often, { attempt: 2 }), names)['b']).toEqual({ status: 'pending', failures: 1 })
  expect(resumed(job(often, { attempt: 4 }), names)['b']).toEqual({ status: 'pending', failures: 3 })
})

test('a memo comes back as it was', () => {
  const phases = failed(progressed(inB, 'b', 12.5), 'b', error)
  const delivery = { id: 'msg_1', at: 1, event: 'failed', url: 'https://example.org/"', attempt: 1 } as const
  const memo = { phases, deliveries: [delivery], webhookSent: 5 } as const
  expect(memoOf({ memo: writeMemo(memo) })).toEqual(memo)
  expect(memoOf({ memo: writeMemo({ deliveries: [delivery] }) })).toEqual({ deliveries: [delivery] })
  expect(writeMemo({ phases: inB })).toBe('{"phases":{"a":["c",{"result":"1"}],"b":["a"],"c":["p"]}}')
  expect(Object.keys(memoOf({ memo: writeMemo({ phases: inB }) }).phases!)).toEqual(names)
})
