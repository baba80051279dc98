// A turn settles, renews and claims in one request and one batch, and waits for work or for the loss of a lease.
import { describe, expect, it } from 'vitest'
import { memory } from 'millrace/memory'
import type { Batch } from '../../../src/store/store.js'
import { observed } from '../../observed-store.js'
import { closing } from '../../setup.js'
import { QUEUE, newWorld } from './world.js'
import type { Leased, Read, World } from './world.js'

const turn = (world: World, fields: object): Promise<Read> =>
  world.ask('work', 'POST', '/v1/turn', { body: { worker: 'w1', queues: [QUEUE], ...fields } })
const leaseOf = ({ id, fence }: Leased): Leased => ({ id, fence })

/** A world whose store keeps the batches that it applied. */
function watched(): { world: World; batches: Batch[]; renewed: () => Promise<void> } {
  const batches: Batch[] = []
  let wake = (): void => {}
  const store = observed(memory(), (batch) => {
    batches.push(batch)
    if (batch.renewals.length > 0) wake()
  })
  const renewed = (): Promise<void> => new Promise((resolve) => (wake = resolve))
  return { world: newWorld({ store: closing(store) }), batches, renewed }
}

describe('a turn', () => {
  it('settles, renews and claims in one batch', async () => {
    const { world, batches } = watched()
    const [a, b, c] = [await world.leased(), await world.leased(), await world.leased()]
    const next = await world.waiting('next')
    batches.length = 0
    const done = [
      { ...leaseOf(a), complete: { result: 1 } },
      { ...leaseOf(b), fail: { error: { message: 'no' }, retry: false } },
    ]
    const { status, body } = await turn(world, { max: 1, beat: [leaseOf(c)], done })
    expect(status).toBe(200)
    expect(body).toMatchObject({
      state: 'running',
      settled: [
        { id: a.id, state: 'completed', repeated: false },
        { id: b.id, state: 'failed' },
      ],
      lost: [],
      jobs: [{ id: next, data: 'next' }],
      again: 0,
    })
    const working = batches.find(({ groups, asks, renewals }) => groups.length + asks.length + renewals.length > 0)
    expect(working).toMatchObject({ renewals: [{ id: c.id }], asks: [{ worker: 'work/w1', want: 1 }] })
    expect(working!.groups).toHaveLength(2)
  })

  it('answers each entry by itself: what was lost, was settled before, or is unknown', async () => {
    const { world } = watched()
    const [a, b, c] = [await world.leased(), await world.leased(), await world.leased()]
    await turn(world, { max: 0, done: [{ ...leaseOf(a), complete: {} }] })
    await (await world.queue.get(b.id))!.cancel({ reason: 'stop it' })
    await (await world.queue.get(c.id))!.remove()
    const done = [a, b, c].map((each) => ({ ...leaseOf(each), complete: {} }))
    const { body } = await turn(world, { max: 0, done, beat: [leaseOf(b), leaseOf(c)] })
    expect(body.settled).toMatchObject([
      { id: a.id, repeated: true },
      { id: b.id, code: 'LEASE_LOST', details: { reason: 'cancelled' } },
      { id: c.id, code: 'JOB_REMOVED' },
    ])
    expect(body.lost).toEqual([
      { id: b.id, reason: 'cancelled', cancelReason: 'stop it' },
      { id: c.id, reason: 'removed' },
    ])
  })

  it('refuses an entry that says nothing, or two things, before anything is written', async () => {
    const { world } = watched()
    const lease = leaseOf(await world.leased())
    for (const wrong of [{}, { complete: {}, release: {} }]) {
      expect(
        await turn(world, {
          done: [
            { ...lease, complete: {} },
            { ...lease, ...wrong },
          ],
        }),
      ).toMatchObject({ status: 400 })
    }
    expect(await world.queue.get(lease.id)).toMatchObject({ state: 'active' })
  })

  it('without anything to settle waits for a job', async () => {
    const { world, renewed } = watched()
    const held = leaseOf(await world.leased())
    const beats = renewed()
    const waits = turn(world, { wait: '25s', lease: '5m', beat: [held] })
    await beats
    const id = await world.waiting()
    expect((await waits).body).toMatchObject({ jobs: [{ id }], lost: [] })
  })

  it('that waits is answered as soon as a job of it is cancelled, also when it claims none', async () => {
    for (const max of [0, 1]) {
      const { world, renewed } = watched()
      const held = leaseOf(await world.leased())
      const beats = renewed()
      const waits = turn(world, { wait: '25s', max, beat: [held] })
      await beats
      await (await world.queue.get(held.id))!.cancel({ reason: 'stop it' })
      const lost = [{ id: held.id, reason: 'cancelled', cancelReason: 'stop it' }]
      expect((await waits).body).toMatchObject({ jobs: [], lost })
    }
  })

  it('does not wait longer than a third of the shortest lease that it renews', async () => {
    const { world } = watched()
    await world.waiting()
    const claimed = await turn(world, { lease: '4s' })
    const held = leaseOf(claimed.body.jobs[0])
    const { body } = await turn(world, { wait: '25s', max: 0, beat: [held] })
    expect(body.lost).toEqual([])
    expect((await turn(world, { max: 0, done: [{ ...held, complete: {} }] })).body.settled).toMatchObject([
      { state: 'completed' },
    ])
  })

  it('renews and settles nothing of another token', async () => {
    const { world } = watched()
    const held = leaseOf(await world.leased())
    const body = { worker: 'w1', queues: [QUEUE], max: 0, beat: [held], done: [{ ...held, complete: {} }] }
    const other = await world.ask('everybody', 'POST', '/v1/turn', { body })
    expect(other.body).toMatchObject({
      lost: [{ id: held.id, reason: 'lease-lost' }],
      settled: [{ code: 'LEASE_LOST' }],
    })
    expect(await world.queue.get(held.id)).toMatchObject({ state: 'active' })
  })
})
