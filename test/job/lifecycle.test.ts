// The lifecycle, rule by rule: what adding, claiming, settling and time do to a job.

import { describe, expect, it } from 'vitest'
import type { Change, Move } from '../../src/job/change.js'
import { withFingerprint } from '../../src/job/errors/fingerprint.js'
import type { Edge, EdgeState, ErrorInfo, FailurePolicy, JobRecord, JobState } from '../../src/job/job.js'
import type { Outcome } from '../../src/job/lifecycle.js'
import {
  cancel,
  claimed,
  create,
  due,
  dueAt,
  mayLeaseAhead,
  mayRenew,
  released,
  renewed,
  settle,
} from '../../src/job/lifecycle.js'
import { NOW, active, finished, move, record, release, spec } from './lifecycle.records.js'

const boom: ErrorInfo = withFingerprint({ name: 'Error', message: 'boom' })

/** An active job whose lease is over. */
function expired(over: Partial<JobRecord> = {}): JobRecord {
  return active({ leaseUntil: NOW, ...over })
}

function returned(over: Partial<Extract<Outcome, { kind: 'returned' }>> = {}): Outcome {
  return { kind: 'returned', result: '42', also: [], ...over }
}

function threw(over: Partial<Extract<Outcome, { kind: 'threw' }>> = {}): Outcome {
  return { kind: 'threw', error: boom, retryable: true, retryIn: 2_000, ...over }
}

function edge(policy: FailurePolicy, state: EdgeState, chain = 'child'): Edge {
  return { dependent: 'job-1', chain, name: 'child', policy, state, result: undefined, error: undefined }
}

describe('a new job', () => {
  it('waits', () => {
    const { edges: _, ...rest } = spec()
    const job = { ...rest, state: 'waiting', chainId: 'job-1', chainIndex: 0 }
    expect(create(spec())).toEqual({ kind: 'insert', job, edges: [] })
  })

  it.each([{ in: 0 }, { in: 5_000 }, { at: NOW }])('with a time to run at (%o) is delayed', (run) => {
    expect(create(spec({ run })).job).toMatchObject({ state: 'delayed', run })
  })

  it('with dependencies waits for them', () => {
    const edges = [{ on: 'child', policy: 'fail' }] as const
    const insert = create(spec({ edges }))
    expect(insert.job.state).toBe('waiting-children')
    expect(insert.edges).toBe(edges)
  })

  it('with dependencies and a time waits for the dependencies first', () => {
    const insert = create(spec({ edges: [{ on: 'child', policy: 'fail' }], run: { in: 5_000 } }))
    expect(insert.job).toMatchObject({ state: 'waiting-children', run: { in: 5_000 } })
  })

  it('begins a chain of its own, or goes on with the one given', () => {
    expect(create(spec()).job).toMatchObject({ chainId: 'job-1', chainIndex: 0 })
    expect(create(spec(), { id: 'job-0', index: 2 }).job).toMatchObject({ chainId: 'job-0', chainIndex: 2 })
  })
})

describe('a job whose last dependency ended well', () => {
  it.each([undefined, NOW - 1, NOW])('waits if its date is %s, which is not ahead', (runAt) => {
    expect(released(runAt, NOW)).toBe('waiting')
  })

  it('is delayed if its date is still ahead', () => {
    expect(released(NOW + 1, NOW)).toBe('delayed')
  })
})

describe('a claimed job', () => {
  const by = { worker: 'w1', lease: 30_000, ahead: false, now: NOW }

  it('is active, leased to its worker, with fence and attempt up by one', () => {
    const job = record()
    expect(claimed(job, by)).toStrictEqual({
      ...job,
      state: 'active',
      fence: 8,
      attempt: 1,
      worker: 'w1',
      leaseUntil: NOW + 30_000,
      dueAt: NOW + 30_000,
      startedAt: NOW,
    })
    expect(job).toStrictEqual(record())
  })

  it('remembers that it was leased ahead', () => {
    expect(claimed(record(), { ...by, ahead: true }).ahead).toBe(true)
    expect(claimed(record({ ahead: true }), by).ahead).toBe(false)
  })

  it('may have been leased ahead only if a dead worker costs it nothing', () => {
    expect(mayLeaseAhead(record())).toBe(true)
    expect(mayLeaseAhead(record({ attempts: Infinity }))).toBe(true)
    expect(mayLeaseAhead(record({ attempts: 1 }))).toBe(false)
    expect(mayLeaseAhead(record({ stalls: 1 }))).toBe(false)
  })
})

describe('a renewed lease', () => {
  it('lasts until the new time, and nothing else changes', () => {
    const job = active({ ahead: true, progress: '1' })
    const until = NOW + 50_000
    expect(renewed(job, { until, started: false })).toStrictEqual({ ...job, leaseUntil: until, dueAt: until })
  })

  it('of a job whose handler has started is no longer leased ahead', () => {
    expect(renewed(active({ ahead: true }), { until: NOW, started: true }).ahead).toBe(false)
  })

  it('may have expired, but its job must not have been moved', () => {
    const job = expired({ fence: 4 })
    expect(mayRenew(job, 4)).toBe(true)
    expect(mayRenew(job, 3)).toBe(false)
    expect(mayRenew(record({ state: 'completed', fence: 4 }), 4)).toBe(false)
  })
})

describe('dueAt', () => {
  const times = { runAt: 1, leaseUntil: 2, brokenAt: 3, staleAt: 5, deleteAt: 4 }

  it.each<[JobState, number | undefined]>([
    ['waiting', undefined],
    ['delayed', 1],
    ['active', 2],
    ['waiting-children', 3],
    ['completed', 4],
    ['failed', 4],
    ['cancelled', 4],
  ])('of a %s job looks only at the time that can happen to it', (state, expected) => {
    expect(dueAt(record({ ...times, state }))).toBe(expected)
    expect(dueAt(record({ state }))).toBe(undefined)
  })

  it.each<[string, Partial<JobRecord>, number | undefined]>([
    ['goes stale first', { staleAt: 4, deleteAt: 5 }, 4],
    ['goes stale and is kept', { staleAt: 4 }, 4],
    ['is only to be removed', { deleteAt: 5 }, 5],
    ['is stale already', { staleAt: 4, deleteAt: 5, stale: true }, 5],
    ['is stale already and kept', { staleAt: 4, stale: true }, undefined],
  ])('of a finished job that %s', (_, over, expected) => {
    for (const state of finished) expect(dueAt(record({ state, ...over }))).toBe(expected)
  })
})

describe('a handler that returned', () => {
  it('completes the job with its result and releases who waits for it', () => {
    const set = { result: '42' }
    expect(settle(active(), returned())).toEqual([move('completed', { held: true, set }), release('completed')])
  })

  it('with nothing completes the job without a result', () => {
    const [completed] = settle(active(), returned({ result: undefined }))
    expect(completed).toEqual(move('completed', { held: true, set: { result: undefined } }))
  })

  it('has its children inserted with the end, before the release', () => {
    const also = [create(spec({ id: 'child-1' })), create(spec({ id: 'child-2' }))]
    expect(settle(active(), returned({ also })).slice(1)).toEqual([...also, release('completed')])
  })

  it('releases no dependent while a continuation continues the chain', () => {
    const also = [create(spec({ id: 'child' }))]
    const continuation = create(spec({ id: 'next' }), { id: 'job-1', index: 1 })
    const group = settle(active(), returned({ also, continuation }))
    expect(group).toEqual([move('completed', { held: true, set: { result: '42' } }), ...also, continuation])
  })

  it('releases the whole chain, which its first job names', () => {
    const group = settle(active({ chainId: 'job-0', chainIndex: 1 }), returned())
    expect(group.at(-1)).toEqual(release('completed', 'job-0'))
  })

  it('keeps the job as long as its retention for that end', () => {
    const keep = { completed: { staleAfter: 10, deleteAfter: 20 }, failed: { deleteAfter: 30 } }
    const ends = [settle(active({ keep }), returned()), settle(active({ keep }), threw({ retryable: false }))]
    expect(ends.map(([end]) => (end as Move).set)).toEqual([
      { result: '42', staleIn: 10, deleteIn: 20 },
      { error: boom, deleteIn: 30 },
    ])
  })

  it('has a job that is not to be kept removed in the same group, by the fence its end gave it', () => {
    const job = active({ keep: { completed: { deleteAfter: 0 } } })
    const also = [create(spec({ id: 'child' }))]
    expect(settle(job, returned({ also }))).toEqual([
      move('completed', { held: true, set: { result: '42', deleteIn: 0 } }),
      ...also,
      release('completed'),
      move('removed', { fence: 8 }),
    ])
    const continuation = create(spec({ id: 'next' }), { id: 'job-1', index: 1 })
    const kinds = settle(job, returned({ continuation })).map((change) => change.kind)
    expect(kinds).toEqual(['move', 'insert', 'move'])
  })

  it('leaves the last job of a chain to upkeep, which looks whether it may go before those ahead of it', () => {
    const last = active({ keep: { completed: { deleteAfter: 0 } }, chainId: 'first', chainIndex: 1 })
    const end = settle(last, returned())
    expect(end).toMatchObject([
      { to: 'completed', set: { deleteIn: 0 } },
      { kind: 'release', chain: 'first' },
    ])
    expect(end).toHaveLength(2)
    const continuation = create(spec({ id: 'next' }), { id: 'first', index: 2 })
    expect(settle(last, returned({ continuation })).at(-1)).toMatchObject({ to: 'removed' })
  })
})

describe('a handler that threw', () => {
  it('with attempts left has the job retried after its backoff', () => {
    const set = { run: { in: 2_000 }, error: boom }
    const expected = [move('delayed', { held: true, why: 'retrying', set })]
    expect(settle(active({ attempt: 2 }), threw())).toEqual(expected)
    expect(settle(active({ attempt: 1_000, attempts: Infinity }), threw())).toEqual(expected)
  })

  it('with attempts left and no backoff has the job wait behind all others', () => {
    const set = { run: { in: 0 }, error: boom }
    expect(settle(active({ attempt: 2 }), threw({ retryIn: 0 }))).toEqual([
      move('waiting', { held: true, why: 'retrying', place: 'new', set }),
    ])
  })

  it.each<[string, JobRecord, Outcome]>([
    ['with no attempts left', active({ attempt: 3 }), threw()],
    ['past its attempts', active({ attempt: 4 }), threw()],
    ['for good', active(), threw({ retryable: false })],
    ['for good, whatever it may try', active({ attempts: Infinity }), threw({ retryable: false })],
  ])('%s fails the job and breaks who waits for it', (_, job, outcome) => {
    expect(settle(job, outcome)).toEqual([move('failed', { held: true, set: { error: boom } }), release('failed')])
  })

  it('has a failed job that is not to be kept removed in the same group', () => {
    const job = active({ attempts: 1, keep: { failed: { deleteAfter: 0 } } })
    expect(settle(job, threw())).toEqual([
      move('failed', { held: true, set: { error: boom, deleteIn: 0 } }),
      release('failed'),
      move('removed', { fence: 8 }),
    ])
  })
})

describe('a run that does not count', () => {
  it('is one that was snoozed: delayed, with the attempt given back', () => {
    const set = { run: { in: 500 }, attempt: 1 }
    expect(settle(active({ attempt: 2 }), { kind: 'snoozed', for: 500 })).toEqual([
      move('delayed', { held: true, set }),
    ])
  })

  it('is one that sleeps: what it remembers and its delay are one group', () => {
    const steps = [{ name: 'sleep:nap', result: undefined }]
    expect(settle(active({ attempt: 2 }), { kind: 'snoozed', for: 500, steps })).toEqual([
      { kind: 'note', id: active().id, fence: 7, held: true, steps },
      move('delayed', { held: true, set: { run: { in: 500 }, attempt: 1 } }),
    ])
  })

  it('is one that is to run again at a date, of which the store knows whether it has come', () => {
    expect(settle(active({ attempt: 2 }), { kind: 'snoozed', for: { at: NOW } })).toEqual([
      move('waiting-children', { held: true, set: { run: { at: NOW }, attempt: 1 } }),
    ])
  })

  it('is one that was snoozed for no time: waiting behind all others', () => {
    expect(settle(active({ attempt: 2 }), { kind: 'snoozed', for: 0 })).toEqual([
      move('waiting', { held: true, place: 'new', set: { run: { in: 0 }, attempt: 1 } }),
    ])
  })

  it('is one that holds its like: waiting in its old place, with the attempt given back, and a hold', () => {
    const hold = { name: 'mill', for: 30_000, by: 'w1', job: 'a' }
    const changes = settle(active({ attempt: 2 }), { kind: 'held', hold })
    expect(changes).toEqual([
      move('waiting', { held: true, set: { attempt: 1 } }),
      expect.objectContaining({ kind: 'put', key: expect.stringMatching(/^pause:/) as string, hold }),
    ])
  })

  it('is one that was interrupted: waiting in its old place, with the attempt given back', () => {
    const set = { attempt: 1 }
    expect(settle(active({ attempt: 2 }), { kind: 'interrupted' })).toEqual([move('waiting', { held: true, set })])
  })

  it('can happen in the last attempt', () => {
    for (const outcome of [{ kind: 'snoozed', for: 0 } as const, { kind: 'interrupted' } as const]) {
      const [change] = settle(active({ attempts: 1 }), outcome)
      expect((change as Move).set.attempt).toBe(0)
    }
  })
})

it('every settlement is refused once the lease is over, because its first change is marked as held', () => {
  const outcomes: Outcome[] = [
    returned(),
    threw(),
    threw({ retryable: false }),
    { kind: 'snoozed', for: 1 },
    { kind: 'snoozed', for: 1, steps: [{ name: 'sleep:nap', result: undefined }] },
    { kind: 'interrupted' },
  ]
  for (const outcome of outcomes) expect(settle(active(), outcome)[0]).toMatchObject({ held: true, fence: 7 })
})

describe('time', () => {
  it.each<[string, JobRecord]>([
    ['a waiting job', record()],
    ['a delayed job before its time', record({ state: 'delayed', runAt: NOW + 1 })],
    ['an active job before its lease is over', active({ leaseUntil: NOW + 1 })],
    ['a job with open dependencies', record({ state: 'waiting-children', pending: 1 })],
    ['a finished job before its retention', record({ state: 'failed', staleAt: NOW + 1, deleteAt: NOW + 2 })],
    ['a finished job that is kept', record({ state: 'completed' })],
    ['a stale job that is kept', record({ state: 'completed', staleAt: NOW, stale: true })],
  ])('does nothing to %s', (_, job) => {
    expect(due(job, NOW, [edge('fail', 'broken')])).toEqual([])
  })

  it('lets a delayed job wait behind all others', () => {
    expect(due(record({ state: 'delayed', runAt: NOW }), NOW)).toEqual([move('waiting', { place: 'new' })])
  })

  it('sends a job whose lease ran out with attempts left back to its old place, the attempt spent', () => {
    const stalled = [move('waiting', { reaps: true, why: 'stalled', set: { stalls: 2 } })]
    expect(due(expired({ attempt: 2, stalls: 1 }), NOW)).toEqual(stalled)
    expect(due(expired({ attempt: 99, attempts: Infinity, stalls: 1 }), NOW)).toEqual(stalled)
  })

  it('fails a job whose lease ran out with no attempts left, as exhausted', () => {
    const group = due(expired({ attempt: 3, stalls: 1 }), NOW)
    const error = {
      name: 'MillraceError',
      code: 'JOB_EXHAUSTED',
      message: expect.stringContaining('exhausted') as string,
      fingerprint: expect.any(String) as string,
    }
    expect(group).toEqual([move('failed', { reaps: true, set: { error, stalls: 2 } }), release('failed')])
    expect((group[0] as Move).set.error?.message).toMatch(/w1.*attempt 3 of 3/)
  })

  it('gives a job that was leased ahead its attempt back, once', () => {
    expect(due(expired({ ahead: true, attempt: 3 }), NOW)).toEqual([
      move('waiting', { reaps: true, why: 'stalled', set: { stalls: 1, attempt: 2 } }),
    ])
    expect(mayLeaseAhead(record({ stalls: 1 }))).toBe(false)
  })

  it('marks a finished job stale, in whatever state it ended', () => {
    for (const state of finished) {
      const stale = [move(state, { why: 'stale', set: { stale: true } })]
      expect(due(record({ state, staleAt: NOW, deleteAt: NOW + 1 }), NOW)).toEqual(stale)
      expect(due(record({ state, staleAt: NOW }), NOW)).toEqual(stale)
    }
  })

  it('removes a finished job without telling those who waited for it a second time', () => {
    for (const state of finished) {
      expect(due(record({ state, deleteAt: NOW }), NOW)).toEqual([move('removed')])
      // It becomes stale first, however late anybody looks.
      const late = record({ state, staleAt: NOW - 1, deleteAt: NOW })
      expect(due(late, NOW)).toMatchObject([{ to: state, why: 'stale', set: { stale: true } }])
      expect(due(record({ state, staleAt: NOW - 1, stale: true, deleteAt: NOW }), NOW)).toEqual([move('removed')])
    }
  })
})

describe('a job with a broken dependency', () => {
  const broken = record({ state: 'waiting-children', pending: 2, brokenAt: NOW })
  const error = {
    name: 'MillraceError',
    code: 'DEPENDENCY_FAILED',
    message: expect.stringContaining('child') as string,
    fingerprint: expect.any(String) as string,
  }
  const failed = [move('failed', { closesBroken: true, set: { error } }), release('failed')]
  const removed = [move('removed'), release('cancelled')]
  const goesOn = [move('waiting-children', { closesBroken: true })]

  it.each<[string, readonly Edge[], Change[]]>([
    ['fails by the policy fail', [edge('fail', 'broken')], failed],
    ['goes on by the policy ignore', [edge('ignore', 'broken')], goesOn],
    ['is removed by the policy remove', [edge('remove', 'broken')], removed],
    ['fails if any of the broken ones says so', [edge('ignore', 'broken', 'x'), edge('fail', 'broken')], failed],
    ['is removed if any of the broken ones says so', [edge('fail', 'broken'), edge('remove', 'broken')], removed],
    [
      'is judged by the broken ones alone',
      [edge('remove', 'open'), edge('fail', 'closed'), edge('ignore', 'broken')],
      goesOn,
    ],
    [
      'stays if all have been decided upon',
      [edge('fail', 'closed'), edge('remove', 'ended'), edge('fail', 'open')],
      [],
    ],
  ])('%s', (_, edges, expected) => {
    expect(due(broken, NOW, edges)).toEqual(expected)
  })

  it('is cancelled by the policy remove where its chain began before it, and is due to go', () => {
    const last = record({ ...broken, chainId: 'first', chainIndex: 1 })
    expect(due(last, NOW, [edge('remove', 'broken')])).toMatchObject([
      { to: 'cancelled', closesBroken: true, set: { deleteIn: 0 } },
      { kind: 'release', chain: 'first', outcome: 'cancelled' },
    ])
  })

  it('is cancelled with its broken edges decided', () => {
    expect(cancel(broken)).toEqual([move('cancelled', { closesBroken: true }), release('cancelled')])
  })
})
