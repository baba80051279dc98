// The rows of signals: what is sent, what time does to them, and when they are removed.
import { describe, expect, it } from 'vitest'
import type { JobRecord } from '../../src/job/job.js'
import { due } from '../../src/job/lifecycle.js'
import { expectSignal, isSignalId, readSignal, newSignal, deliverSignal } from '../../src/job/signals.js'
import { NOW, finished, move, record, release } from './lifecycle.records.js'

const DAY = 24 * 60 * 60 * 1000
const owner = { id: 'job', queue: 'work', createdAt: NOW - 5 }
const { data, keep } = newSignal(owner, 'id', 'approved', undefined).job
const timed = newSignal(owner, 'id', 'approved', 500).job.data

function row(over: Partial<JobRecord> = {}): JobRecord {
  return record({ kind: 'signal', state: 'delayed', runAt: NOW, dueAt: NOW, data, keep, parentId: 'job', ...over })
}

it('a signal is a row of its job, delayed until its time is over, or it is looked at', () => {
  const { job } = newSignal(owner, 'id', 'approved', 500)
  expect(job).toMatchObject({ id: 'id', kind: 'signal', queue: 'work', parentId: 'job', state: 'delayed' })
  expect(job.run).toEqual({ in: 500 })
  expect(readSignal(job)).toEqual({ name: 'approved', jobCreatedAt: NOW - 5, timeout: 500 })
  expect(newSignal(owner, 'id', 'approved', undefined).job.run).toEqual({ in: DAY })
  expect(isSignalId('millrace:signal:1')).toBe(true)
  expect(isSignalId('signal:1')).toBe(false)
})

describe('what is sent', () => {
  it('completes the row, and releases who waits', () => {
    const set = { result: '"yes"', deleteIn: DAY }
    expect(deliverSignal(row(), '"yes"')).toEqual([move('completed', { set }), release('completed')])
    expect(deliverSignal(row(), undefined)[0]).toMatchObject({ set: { deleteIn: DAY } })
  })

  it.each(finished)('changes nothing of one that is %s', (state) => {
    expect(deliverSignal(row({ state }), '"again"')).toEqual([])
  })
})

it('a wait gives a standing row its time', () => {
  expect(expectSignal(row(), 500)).toEqual([move('delayed', { set: { data: timed, run: { in: 500 } } })])
})

describe('time', () => {
  it('ends a row that was waited for as failed, with SIGNAL_TIMEOUT', () => {
    const error = {
      name: 'MillraceError',
      code: 'SIGNAL_TIMEOUT',
      message: "Signal 'approved' did not come within 500 ms.",
    }
    expect(due(row({ data: timed }), NOW)).toEqual([
      move('failed', { set: { error, deleteIn: DAY } }),
      release('failed'),
    ])
  })

  it('leaves a row without a bound open for as long as its job is there', () => {
    expect(due(row(), NOW)).toEqual([move('delayed', { set: { run: { in: DAY } } })])
    expect(due(row(), NOW - 1)).toEqual([])
  })

  it.each([undefined, 500])('removes an open row whose job is gone', (timeout) => {
    const gone = row({ data: timeout === undefined ? data : timed })
    expect(due(gone, NOW, [], false)).toEqual([move('removed'), release('cancelled')])
  })

  it.each(finished)('removes a row that is %s with its job, and not before', (state) => {
    const ended = row({ state, deleteAt: NOW })
    expect(due(ended, NOW, [], true)).toEqual([move(state, { set: { deleteIn: DAY } })])
    expect(due(ended, NOW, [], false)).toEqual([move('removed')])
  })
})
