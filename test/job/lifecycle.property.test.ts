// The lifecycle under random walks: whatever happens in whatever order, no job leaves the table of transitions.

import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { NewEdge } from '../../src/job/change.js'
import { isFinished } from '../../src/job/job.js'
import type { JobRecord, KeepByState } from '../../src/job/job.js'
import * as lifecycle from '../../src/job/lifecycle.js'
import type { Outcome } from '../../src/job/lifecycle.js'
import { spec } from './lifecycle.records.js'
import { World, must, table } from './lifecycle.world.js'

type ValueOf<Drawn> = Drawn extends fc.Arbitrary<infer Value> ? Value : never

const millis = fc.oneof(fc.constant(0), fc.nat({ max: 40 }))
const when = fc.oneof(fc.record({ in: millis }), fc.record({ at: millis.map((at) => 1_000_000 + at) }))
const kept = fc.record({ staleAfter: millis, deleteAfter: millis }, { requiredKeys: [] })
const keep: fc.Arbitrary<KeepByState> = fc.record(
  { completed: kept, failed: kept, cancelled: kept },
  { requiredKeys: [] },
)
const policy = fc.constantFrom('fail', 'ignore', 'remove')
const planned = fc.record({
  attempts: fc.constantFrom(1, 2, 3, Infinity),
  run: fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: when }),
  keep: fc.option(keep, { nil: undefined }),
  after: fc.array(fc.record({ on: fc.nat(), policy }), { maxLength: 2, size: 'max' }),
})
const finite = planned.map((plan) => ({ ...plan, attempts: Math.min(plan.attempts, 3) }))
const plans = fc.array(planned, { minLength: 1, maxLength: 4 })

type Plan = ValueOf<typeof planned>

/** A world with these jobs, each depending on some of those before it. */
function worldOf(given: readonly Plan[]): World {
  const world = new World()
  for (const [index, { after, ...rest }] of given.entries()) {
    const edges: NewEdge[] = index === 0 ? [] : after.map(({ on, policy }) => ({ on: `job-${on % index}`, policy }))
    const insert = lifecycle.create(spec({ ...rest, id: `job-${index}`, edges }))
    world.happen('added', insert.job, [insert])
  }
  return world
}

/** Which job something happens to, and how many versions ago those who act on it looked: mostly none. */
const which = fc.nat()
const ago = fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat({ max: 5 }) })
const error = { name: 'Error', message: 'boom' }
const edit = fc.oneof(
  fc.constant({ data: '1' }),
  fc.record({ data: fc.constantFrom('1', null), priority: fc.nat(), run: when }, { requiredKeys: [] }),
)
const pass = fc.record({ do: fc.constant('pass'), time: fc.oneof(millis, fc.constant('next' as const)) })
const lease = fc.integer({ min: 1, max: 40 })
const step = fc.oneof(
  { weight: 4, arbitrary: pass },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('claim'), lease, ahead: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('return'), which, ago, also: fc.nat({ max: 2 }), goesOn: fc.boolean() }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('throw'), which, ago, retryable: fc.boolean(), retryIn: millis }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('snooze'), which, ago, for: millis }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait'), which, ago, also: fc.nat({ max: 2 }), policy }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('interrupt', 'hold', 'renew', 'note'), which, ago }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('due', 'retry'), which, ago }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('cancel', 'promote', 'remove'), which, ago }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('update'), which, ago, edit }) },
)
const steps = fc.array(step, { minLength: 10, maxLength: 40, size: 'max' })

type WalkStep = ValueOf<typeof step>

/** A lease as its worker was given it: mostly one in force. */
function pickLease(world: World, which: number, ago: number): JobRecord | undefined {
  if (ago > 0) return world.leases[which % world.leases.length]
  const running = [...world.jobs.values()].filter((job) => job.state === 'active')
  return running[which % running.length]
}

/** Takes one step of a walk. Workers act on what they were given, active; people and upkeep on what they saw. */
function take(world: World, step: WalkStep): void {
  if (step.do === 'pass') {
    return world.pass(step.time === 'next' ? (world.nextDue() ?? 0) : world.now + step.time)
  }
  if (step.do === 'claim') {
    const next = world.waiting()[0]
    if (next !== undefined) world.claim(next, step.lease, step.ahead && lifecycle.mayLeaseAhead(next))
    return world.look()
  }
  const versions = [...world.seen.values()][step.which % world.seen.size]!
  const job = versions.at(-1 - (step.ago % versions.length))!
  const mine = pickLease(world, step.which, step.ago)
  const settle = (outcome: Outcome): void => {
    if (mine !== undefined) world.happen(outcome.kind, mine, lifecycle.settle(mine, outcome))
  }
  switch (step.do) {
    case 'return': {
      const also = Array.from({ length: step.also }, () =>
        lifecycle.create(
          spec({ id: world.mint(), edges: mine === undefined ? [] : [{ on: mine.id, policy: 'fail' }] }),
        ),
      )
      const chain = mine && { id: mine.chainId, index: mine.chainIndex + 1 }
      // Sometimes the chain goes on with one that waits for what has ended badly.
      const bad = [...world.jobs.values()].find(({ state }) => state === 'failed' || state === 'cancelled')
      const waits = step.also === 0 && bad !== undefined && bad.chainId !== mine?.chainId
      const edges: NewEdge[] = waits ? [{ on: bad.id, policy: 'remove' }] : []
      const continuation = step.goesOn ? lifecycle.create(spec({ id: world.mint(), edges }), chain) : undefined
      return settle({ kind: 'returned', result: '1', also, ...(continuation && { continuation }) })
    }
    case 'throw':
      return settle({ kind: 'threw', error, retryable: step.retryable, retryIn: step.retryIn })
    case 'snooze':
      return settle({ kind: 'snoozed', for: step.for })
    case 'wait': {
      const also = Array.from({ length: step.also }, () => lifecycle.create(spec({ id: world.mint(), edges: [] })))
      // Or for one that has finished: two that wait for each other would wait for ever.
      const others = also.length > 0 ? also.map(({ job: { id } }) => id) : [job.id]
      const standing = world.jobs.get(job.id)
      if (also.length === 0 && (standing === undefined || !isFinished(standing.state))) return
      if (also.length === 0 && standing?.chainId === mine?.chainId) return
      return settle({ kind: 'waits', for: others.map((on) => ({ on, policy: step.policy })), also })
    }
    case 'hold':
      return settle({ kind: 'held', hold: { for: 1 } })
    case 'interrupt':
      return settle({ kind: 'interrupted' })
    case 'renew':
      if (mine !== undefined) world.renew(mine, 20)
      return world.look()
    case 'note':
      if (mine !== undefined) world.happen('noted', mine, [lifecycle.note(mine, { progress: '1' })])
      return
    case 'due': {
      // A version that still stands is read as it is now: a lease that was renewed in time is not over.
      const current = world.jobs.get(job.id)
      const read = current?.fence === job.fence ? current : job
      world.happen('due', read, lifecycle.due(read, world.now, world.edgesOf(job.id)))
      return
    }
    case 'cancel':
      return void world.happen('cancelled', job, lifecycle.cancel(job))
    case 'retry':
      return void world.happen('retried', job, lifecycle.retry(job))
    case 'promote':
      return void world.happen('promoted', job, lifecycle.promote(job))
    case 'remove':
      return void world.happen('removed', job, lifecycle.remove(job))
    case 'update': {
      const event = job.state === 'active' ? 'noted' : 'updated'
      return void world.happen(event, job, lifecycle.update(job, step.edit))
    }
  }
}

function walk(given: readonly Plan[], taken: readonly WalkStep[]): World {
  const world = worldOf(given)
  for (const step of taken) take(world, step)
  return world
}

describe('whatever happens', () => {
  it('no job leaves the table, no fence decreases, no attempt is out of bounds, and every end is published once', () => {
    fc.assert(
      fc.property(plans, steps, (given, taken) => void walk(given, taken)),
      { numRuns: 2_000 },
    )
  })

  it('every row of the table can happen: none is there in vain', () => {
    const visited = new Set<string>()
    const taken = fc.property(plans, steps, (given, taken) => {
      for (const each of walk(given, taken).visited) visited.add(each)
    })
    fc.assert(taken, { numRuns: 2_000, seed: 2 }) // always the same walks, so that no row is missed by bad luck
    const listed = Object.entries(table).flatMap(([what, rows]) =>
      Object.entries(rows).flatMap(([from, all]) => all.map((to) => `${what}: ${from} → ${to}`)),
    )
    expect(listed.filter((row) => !visited.has(row))).toEqual([])
  })

  it('time alone always reaches a final state', () => {
    fc.assert(
      fc.property(plans, steps, (given, taken) => {
        const world = walk(given, taken)
        // Delay, lease, broken edges, stale and removal: each job has only so many times.
        let left = 5 * world.jobs.size + world.edges.length + 1
        for (let next = world.nextDue(); next !== undefined; next = world.nextDue()) {
          world.pass(next)
          must(world.upkeep() > 0, 'a job that is due is changed', world.nextDue())
          must(left-- > 0, 'time comes to an end', [...world.jobs.values()])
        }
      }),
      { numRuns: 1_000 },
    )
  })

  it('willing workers and time bring every job to an end: none is stuck', () => {
    fc.assert(
      fc.property(plans, steps, (given, taken) => {
        const world = walk(given, taken)
        for (let rounds = 0; ; rounds++) {
          must(rounds < 200, 'every job ends', [...world.jobs.values()])
          world.upkeep()
          for (const job of world.waiting()) {
            const mine = world.claim(job, 10, false)
            world.happen('returned', mine, lifecycle.settle(mine, { kind: 'returned', result: undefined, also: [] }))
          }
          if ([...world.jobs.values()].every((job) => isFinished(job.state))) break
          world.pass(world.nextDue() ?? 0)
        }
      }),
      { numRuns: 1_000 },
    )
  })

  it('a job that kills every worker ends, at the cost of one lease more than it has attempts', () => {
    fc.assert(
      fc.property(finite, fc.boolean(), (plan, ahead) => {
        const world = worldOf([{ ...plan, run: undefined, keep: undefined }])
        let leases = 0
        for (let [job] = world.waiting(); job !== undefined; [job] = world.waiting()) {
          must(leases++ <= plan.attempts, 'it ends', job)
          world.claim(job, 10, ahead && lifecycle.mayLeaseAhead(job))
          world.pass(world.now + 10)
          world.upkeep()
        }
        expect(world.jobs.get('job-0')).toMatchObject({ state: 'failed', error: { code: 'JOB_EXHAUSTED' } })
        expect(leases).toBe(plan.attempts + (ahead && plan.attempts > 1 ? 1 : 0))
      }),
    )
  })

  it('a worker whose lease is over changes nothing, even if no upkeep has reaped the job yet', () => {
    const outcomes: Outcome[] = [
      { kind: 'returned', result: '1', also: [lifecycle.create(spec({ id: 'child' }))] },
      { kind: 'threw', error, retryable: true, retryIn: 0 },
      { kind: 'threw', error, retryable: false, retryIn: 0 },
      { kind: 'snoozed', for: 0 },
      { kind: 'held', hold: { for: 1 } },
      { kind: 'interrupted' },
    ]
    fc.assert(
      fc.property(finite, fc.constantFrom(...outcomes), millis, (plan, outcome, late) => {
        const world = worldOf([{ ...plan, run: undefined }])
        const mine = world.claim(world.waiting()[0]!, 10, false)
        world.pass(world.now + 10 + late)
        const before = [...world.jobs]
        expect(world.apply(lifecycle.settle(mine, outcome))).toBe(undefined)
        expect(world.apply([lifecycle.note(mine, { progress: '1' })])).toBe(undefined)
        expect([...world.jobs]).toEqual(before)
      }),
    )
  })
})
