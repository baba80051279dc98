// The three moves of jobs that nobody holds: let through as the library makes them, and in no other form.
import { describe, expect, it } from 'vitest'
import { create, move } from '../../../src/job/change.js'
import type { Change, Move } from '../../../src/job/change.js'
import type { JobRecord } from '../../../src/job/job.js'
import { drop, replace } from '../../../src/job/lifecycle.js'
import { deliverSignal, newSignal } from '../../../src/job/signals.js'
import { signalId } from '../../../src/queue/send-signal.js'
import type { Verdict } from '../../../src/store/batch.js'
import { isMillraceError } from '../../../src/job/errors/errors.js'
import { protocolWorld, spec } from './world.js'
import type { ProtocolWorld } from './world.js'

let seq = 0

/** Adds a job on the store itself. */
async function add({ store }: ProtocolWorld, fields: Partial<Parameters<typeof create>[0]> = {}): Promise<JobRecord> {
  const groups = [[create({ ...spec, id: `job-${++seq}`, ...fields })]]
  const receipt = await store.commit({ writer: 'setup', seq: ++seq, groups, renewals: [], asks: [] })
  const [verdict] = receipt.groups
  if (!verdict!.ok) throw new Error(verdict!.why)
  return verdict!.inserted[0]!
}

/** Sends a group as a producer of the queue: applied, refused as moved, or forbidden. */
async function sent({ remote }: ProtocolWorld, group: readonly Change[]): Promise<string> {
  try {
    const batch = { writer: 'w', seq: ++seq, groups: [group], renewals: [], asks: [] }
    const [verdict] = (await remote('producer').commit(batch)).groups as [Verdict]
    return verdict.ok ? 'applied' : verdict.why
  } catch (error) {
    if (isMillraceError(error, 'FORBIDDEN')) return 'forbidden'
    throw error
  }
}

const NEWER = create({ ...spec, id: 'newer', data: '2', priority: 3 }).job
const key = { key: JSON.stringify(['mail', 'k']) }

describe('replace', () => {
  it.each([
    ['a job that holds no key', {}, (made: Move) => [made], 'fence'],
    ['a job of another queue', { queue: 'bills', dedup: { key: '["bills","k"]' } }, (made: Move) => [made], 'fence'],
    ['beside another change', { dedup: key }, (made: Move) => [made, create({ ...spec, id: `x-${++seq}` })], 'fence'],
    ['with another fence', { dedup: key }, (made: Move) => [{ ...made, fence: made.fence + 1 }], 'fence'],
    [
      'and reset its attempts',
      { dedup: key },
      (made: Move) => [{ ...made, set: { ...made.set, attempt: 0 } }],
      'fence',
    ],
    ['and write a result', { dedup: key }, (made: Move) => [{ ...made, set: { ...made.set, result: '1' } }], 'fence'],
    ['and close what it waits for', { dedup: key }, (made: Move) => [{ ...made, closesBroken: true }], 'fence'],
    ['and remove it', { dedup: key }, (made: Move) => [{ ...made, to: 'removed' as const }], 'forbidden'],
    ['and make it fail', { dedup: key }, (made: Move) => [{ ...made, to: 'failed' as const }], 'forbidden'],
  ] as const)('not %s', async (_, fields, form, outcome) => {
    const world = await protocolWorld()
    const job = await add(world, fields)
    const group = form((replace({ ...job, dedup: key }, NEWER) as readonly Move[])[0]!)
    expect(await sent(world, group)).toBe(outcome)
    expect((await world.store.get([job.id]))[0]).toEqual(job)
  })

  it('not a job that has begun', async () => {
    const world = await protocolWorld()
    const job = await add(world, { dedup: key })
    const [made] = replace(job, NEWER) as readonly Move[]
    const ask = { worker: 'w', queues: ['mail'], handles: [{ name: undefined, lease: 60_000 }], want: 1, ahead: 0 }
    const { asks } = await world.store.commit({ writer: 'x', seq: 1, groups: [], renewals: [], asks: [ask] })
    const active = asks[0]![0]!
    expect(await sent(world, [{ ...made!, fence: active.fence }])).toBe('fence')
    expect((await world.store.get([job.id]))[0]).toEqual(active)
  })

  it('not a job that waits for others, but as one that still does', async () => {
    const world = await protocolWorld()
    const first = await add(world)
    const job = await add(world, { dedup: key, edges: [{ on: first.id, policy: 'fail' }] })
    const [made] = replace(job, NEWER) as readonly Move[]
    expect(await sent(world, [{ ...made!, to: 'waiting' }])).toBe('fence')
    expect(await sent(world, [made!])).toBe('applied')
    expect((await world.store.get([job.id]))[0]).toMatchObject({ state: 'waiting-children', pending: 1, data: '2' })
  })
})

describe('drop the oldest', () => {
  const limited = async (whenFull: string): Promise<ProtocolWorld> => {
    const world = await protocolWorld()
    const value = JSON.stringify({ by: 'queue', groups: { g: { backlog: 1, whenFull } } })
    const put = { kind: 'put', key: 'limit:mail', value, version: 0, events: [] } as const
    await world.store.commit({ writer: 'limit', seq: 1, groups: [[put]], renewals: [], asks: [] })
    return world
  }
  const newer = (group: string | undefined) => create({ ...spec, id: `new-${++seq}`, group })

  it('of the group, where its limit says so', async () => {
    const world = await limited('drop-oldest')
    const job = await add(world, { group: 'g' })
    expect(await sent(world, [...drop(job), newer('g')])).toBe('applied')
  })

  it.each([
    ['where its limit says otherwise', 'reject', 'g', (job: JobRecord) => [...drop(job), newer('g')], 'fence'],
    ['of another group', 'drop-oldest', 'h', (job: JobRecord) => [...drop(job), newer('g')], 'fence'],
    ['without a job that takes its place', 'drop-oldest', 'g', (job: JobRecord) => drop(job), 'fence'],
    ['of no group', 'drop-oldest', undefined, (job: JobRecord) => [...drop(job), newer(undefined)], 'fence'],
    [
      'for a reason of its own',
      'drop-oldest',
      'g',
      (job: JobRecord) => [
        move(job, 'cancelled', { set: { error: { name: 'X', message: 'mine', code: 'JOB_DROPPED' } } }),
        newer('g'),
      ],
      'fence',
    ],
    ['as a cancellation', 'drop-oldest', 'g', (job: JobRecord) => [move(job, 'cancelled'), newer('g')], 'forbidden'],
  ] as const)('not %s', async (_, whenFull, group, form, outcome) => {
    const world = await limited(whenFull)
    const job = await add(world, { group })
    expect(await sent(world, form(job))).toBe(outcome)
    expect((await world.store.get([job.id]))[0]).toEqual(job)
  })
})

describe('a signal', () => {
  const rowOf = async (world: ProtocolWorld, queue: string): Promise<JobRecord> => {
    const job = await add(world, { queue })
    const row = newSignal(job, signalId(job, 'go'), 'go', undefined)
    const groups = [[row]]
    const receipt = await world.store.commit({ writer: 'setup', seq: ++seq, groups, renewals: [], asks: [] })
    const [verdict] = receipt.groups as [Verdict]
    if (!verdict.ok) throw new Error(verdict.why)
    return verdict.inserted[0]!
  }

  it('is sent to a job of the queue', async () => {
    const world = await protocolWorld()
    expect(await sent(world, deliverSignal(await rowOf(world, 'mail'), '1'))).toBe('applied')
  })

  it('is not sent to a job of another queue', async () => {
    const world = await protocolWorld()
    const row = await rowOf(world, 'bills')
    expect(await sent(world, deliverSignal(row, '1'))).toBe('fence')
    expect((await world.store.get([row.id]))[0]).toEqual(row)
  })

  it('is no way to end another job, and its row cannot be removed', async () => {
    const world = await protocolWorld()
    const row = await rowOf(world, 'mail')
    const job = await add(world)
    expect(await sent(world, [...deliverSignal(row, '1'), move(job, 'completed')])).toBe('forbidden')
    expect(await sent(world, [move(row, 'removed')])).toBe('forbidden')
    expect(await sent(world, [{ ...move(row, 'delayed'), set: { run: { in: 1 }, data: '{}' } }])).toBe('fence')
    expect(await world.store.get([row.id, job.id])).toEqual([row, job])
  })

  it('is not added for a job of another queue, nor for one that is not there', async () => {
    const world = await protocolWorld()
    const bill = await add(world, { queue: 'bills' })
    const foreign = newSignal(bill, signalId(bill, 'go'), 'go', undefined)
    expect(await sent(world, [foreign])).toBe('forbidden')
    expect(await sent(world, [{ ...foreign, job: { ...foreign.job, queue: 'mail' } }])).toBe('missing')
    const mail = await add(world)
    const own = newSignal(mail, signalId(mail, 'go'), 'go', undefined)
    expect(await sent(world, [{ ...own, job: { ...own.job, id: 'plain', chainId: 'plain' } }])).toBe('forbidden')
    expect(await sent(world, [own])).toBe('applied')
  })
})
