// The lifecycle, rule by rule: what people and workers may wish for, what it writes, and what is denied.

import { describe, expect, it } from 'vitest'
import type { Change, Move } from '../../src/job/change.js'
import { jobStates } from '../../src/job/job.js'
import type { ErrorInfo, JobRecord, JobState } from '../../src/job/job.js'
import {
  cancel,
  complete,
  continueChain,
  create,
  isDenied,
  lock,
  note,
  promote,
  remove,
  replace,
  retry,
  statesFor,
  update,
} from '../../src/job/lifecycle.js'
import { NOW, active, finished, move, record, release, spec } from './lifecycle.records.js'

const boom: ErrorInfo = { name: 'Error', message: 'boom' }
const unstarted = ['waiting', 'delayed', 'waiting-children'] as const

function inState(state: JobState): JobRecord {
  return state === 'active' ? active() : record({ state })
}

describe('the states that a request is for', () => {
  const wishes = { cancel, retry, promote, remove, update: (job: JobRecord) => update(job, { priority: 1 }) }

  it.each(Object.entries(wishes))('%s changes jobs in exactly these', (wish, decide) => {
    const changed = jobStates.filter((state) => {
      const decision = decide(inState(state))
      return !isDenied(decision) && decision.length > 0
    })
    expect(changed).toEqual(
      jobStates.filter((state) => statesFor[wish as keyof typeof wishes].includes(state as never)),
    )
  })
})

describe('cancel', () => {
  it.each([...unstarted, 'active'] as const)('ends a %s job at once and breaks who waits for it', (state) => {
    expect(cancel(inState(state))).toEqual([move('cancelled'), release('cancelled')])
  })

  it.each(finished)('leaves a %s job as it is', (state) => {
    expect(cancel(record({ state }))).toEqual([])
  })

  it('keeps the job as long as its retention for that end', () => {
    const kept = cancel(record({ keep: { cancelled: { staleAfter: 5 } } }))
    expect(kept).toEqual([move('cancelled', { set: { staleIn: 5 } }), release('cancelled')])
    const gone = cancel(record({ keep: { cancelled: { deleteAfter: 0 } } }))
    expect(gone).toEqual([
      move('cancelled', { set: { deleteIn: 0 } }),
      release('cancelled'),
      move('removed', { fence: 8 }),
    ])
  })
})

describe('complete', () => {
  const also = [create(spec({ id: 'also' }))]
  const returned = { kind: 'returned', result: '42', also: [] } as const

  it.each([...unstarted, 'active'] as const)(
    'ends a %s job well, whoever holds it, and releases who waits',
    (state) => {
      expect(complete(inState(state), returned)).toEqual([
        move('completed', { set: { result: '42' } }),
        release('completed'),
      ])
    },
  )

  it.each(finished)('is denied to a %s job', (state) => {
    expect(complete(record({ state }), returned)).toEqual({ denied: expect.stringContaining(state) as string })
  })

  it('inserts jobs, and releases no dependent while the chain goes on', () => {
    const continuation = continueChain(record(), create(spec({ id: 'next' })))
    expect(complete(record(), { ...returned, also, continuation })).toEqual([
      move('completed', { set: { result: '42' } }),
      ...also,
      continuation,
    ])
    expect(complete(record(), { kind: 'returned', result: undefined, also })).toEqual([
      move('completed'),
      ...also,
      release('completed'),
    ])
  })

  it('decides dependencies that broke, and removes a job that is not to be kept', () => {
    const broken = record({ state: 'waiting-children', brokenAt: NOW, keep: { completed: { deleteAfter: 0 } } })
    expect(complete(broken, returned)).toEqual([
      move('completed', { closesBroken: true, set: { result: '42', deleteIn: 0 } }),
      release('completed'),
      move('removed', { fence: 8 }),
    ])
  })
})

it('a continuation is the next of the chain', () => {
  const next = continueChain(record({ chainId: 'job-0', chainIndex: 3 }), create(spec({ id: 'next' })))
  expect(next).toEqual(create(spec({ id: 'next' }), { id: 'job-0', index: 4 }))
})

it('a continuation is a child of the parent of the job before it', () => {
  const { job } = continueChain(record({ parentId: 'parent' }), create(spec({ id: 'next', parentId: undefined })))
  expect(job).toMatchObject({ id: 'next', chainId: 'job-1', parentId: 'parent' })
})

it('a lock publishes nothing, and is held where a worker asks', () => {
  expect(lock(active(), true)).toEqual(note(active(), {}))
  expect(lock(record(), false)).toEqual({ kind: 'note', id: 'job-1', fence: 7, held: false })
})

describe('retry', () => {
  const afresh = { attempt: 0, stalls: 0, error: null, run: null }

  it.each(['failed', 'cancelled'] as const)('starts a %s job over with all its attempts', (state) => {
    const job = record({ state, attempt: 3, stalls: 2, error: boom })
    expect(retry(job)).toEqual([{ ...move('waiting-children', { place: 'new', set: afresh }), reopens: true }])
  })

  it('starts a job over after a while, if asked, also one that waits for others', () => {
    const set = { attempt: 0, stalls: 0, error: null, run: { in: 500 } }
    const expected = [{ ...move('waiting-children', { place: 'new', set }), reopens: true }]
    for (const pending of [0, 1]) expect(retry(record({ state: 'failed', pending }), 500)).toEqual(expected)
  })

  it.each([...unstarted, 'active', 'completed'] as const)('is denied to a %s job', (state) => {
    expect(retry(inState(state))).toEqual({ denied: expect.stringContaining(`is ${state}`) as string })
  })
})

describe('promote', () => {
  it('lets a delayed job wait behind all others', () => {
    expect(promote(record({ state: 'delayed', runAt: NOW + 1 }))).toEqual([move('waiting', { place: 'new' })])
  })

  it('leaves a waiting job as it is', () => {
    expect(promote(record())).toEqual([])
  })

  it.each(['waiting-children', 'active', ...finished] as const)('is denied to a %s job', (state) => {
    expect(promote(inState(state))).toEqual({ denied: expect.stringContaining(`is ${state}`) as string })
  })
})

describe('update', () => {
  const edit = { data: '1', priority: 2 }

  it.each(unstarted)('writes to a %s job where it stands', (state) => {
    expect(update(record({ state }), edit)).toEqual([move(state, { set: edit })])
  })

  it.each([
    ['waiting', 'delayed'],
    ['delayed', 'delayed'],
    ['waiting-children', 'waiting-children'],
  ] as const)('with a time leaves a %s job %s', (state, to) => {
    const set = { run: { in: 5 } }
    expect(update(record({ state }), set)).toEqual([move(to, { set })])
  })

  it.each(unstarted)('with a date leaves it to the store where a %s job goes', (state) => {
    const set = { run: { at: NOW } }
    expect(update(record({ state }), set)).toEqual([move('waiting-children', { set })])
  })

  it('without a delay lets a job wait, which keeps its place if it did', () => {
    const set = { run: { in: 0 } }
    const expected = [move('waiting', { place: 'new', set })]
    expect(update(record({ state: 'delayed', runAt: NOW + 1 }), set)).toEqual(expected)
    expect(update(record(), set)).toEqual(expected)
  })

  it('empties the data of a job that has not started', () => {
    expect(update(record(), { data: null })).toEqual([move('waiting', { set: { data: null } })])
  })

  it('gives an active job data for its next attempt, without disturbing this one', () => {
    const written: Change = { kind: 'note', id: 'job-1', fence: 7, held: false, data: '1' }
    expect(update(active(), { data: '1' })).toEqual([written])
  })

  it('of nothing changes nothing in an active job', () => {
    expect(update(active(), {})).toEqual([])
  })

  it.each(['failed', 'cancelled'] as const)('gives a %s job data for its retry', (state) => {
    expect(update(record({ state }), { data: '1' })).toEqual([move(state, { set: { data: '1' } })])
  })

  it.each(['active', 'failed', 'cancelled'] as const)('of priority or time is denied to a %s job', (state) => {
    for (const wish of [{ priority: 1 }, { run: { in: 1 } }, { data: '1', priority: 1 }]) {
      expect(update(inState(state), wish)).toEqual({ denied: expect.stringContaining(`is ${state}`) as string })
    }
  })

  it('is denied to a completed job, whatever is wished', () => {
    for (const wish of [edit, { data: '1' }, {}]) {
      expect(update(record({ state: 'completed' }), wish)).toEqual({
        denied: expect.stringContaining('completed') as string,
      })
    }
  })
})

describe('remove', () => {
  it.each([...unstarted, 'active'] as const)('takes a %s job away and breaks who waits for it', (state) => {
    expect(remove(inState(state))).toEqual([move('removed'), release('cancelled')])
  })

  it.each(finished)('removes a %s job whose end has been delivered', (state) => {
    expect(remove(record({ state }))).toEqual([move('removed')])
  })
})

describe('replace', () => {
  const by = create(spec({ id: 'newer', data: '2', priority: 5 })).job

  it.each(unstarted)('writes the newer one over a %s job', (state) => {
    const to = state === 'delayed' ? 'waiting' : state // the newer one has no delay
    const place = state === 'delayed' ? 'new' : 'old'
    expect(replace(record({ state }), by)).toEqual([move(to, { place, set: { data: '2', priority: 5, run: null } })])
  })

  it('takes over the time of the newer one', () => {
    const later = create(spec({ id: 'newer', data: '2', run: { in: 9 } })).job
    const set = { data: '2', priority: 0, run: { in: 9 } }
    expect(replace(record(), later)).toEqual([move('delayed', { set })])
    expect(replace(record({ state: 'delayed', runAt: NOW }), later)).toEqual([move('delayed', { set })])
  })

  it('leaves it to the store whether the date of the newer one has come', () => {
    const dated = create(spec({ id: 'newer', data: '2', run: { at: NOW } })).job
    const set = { data: '2', priority: 0, run: { at: NOW } }
    for (const state of unstarted) {
      expect(replace(record({ state }), dated)).toEqual([move('waiting-children', { set })])
    }
  })

  it('takes over that the newer one has no data', () => {
    const [change] = replace(record(), create(spec()).job) as readonly Change[]
    expect((change as Move).set.data).toBe(null)
  })

  it('leaves a job that waits for its next attempt as it is', () => {
    expect(replace(record({ state: 'delayed', runAt: NOW, attempt: 1 }), by)).toEqual([])
  })

  it.each(['active', ...finished] as const)('leaves a %s job, which has started, as it is', (state) => {
    expect(replace(inState(state), by)).toEqual([])
  })
})

it('a note is bound to its fence and its lease, and writes only the given fields', () => {
  const held = { kind: 'note', id: 'job-1', fence: 7, held: true }
  expect(note(active(), { progress: '50' })).toStrictEqual({ ...held, progress: '50' })
  expect(note(active(), { logs: ['ground'] })).toStrictEqual({ ...held, logs: ['ground'] })
})

it('a denial continues a sentence after the name of the job, and is distinguished from changes', () => {
  for (const state of jobStates) {
    for (const wish of [cancel, retry, promote, remove, (job: JobRecord) => update(job, { priority: 1 })]) {
      const decision = wish(inState(state))
      expect(isDenied(decision)).toBe(!Array.isArray(decision))
      if (isDenied(decision)) expect(decision.denied).toMatch(new RegExp(`^is ${state};`))
    }
  }
})
