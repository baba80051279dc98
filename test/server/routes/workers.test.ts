// Workers over HTTP are in the registry, and an operator can ask them to pause or to stop.
import { expect, it } from 'vitest'
import { memory } from 'millrace/memory'
import { observed } from '../../observed-store.js'
import { closing, newWorker } from '../../setup.js'
import { QUEUE, newWorld } from './world.js'
import type { Read, Who, World } from './world.js'

const claim = (world: World, fields: object = {}): Promise<Read> =>
  world.ask('work', 'POST', '/v1/claims', { body: { worker: 'w1', queues: [QUEUE], names: ['send'], ...fields } })
const steer = (world: World, call: string, worker = 'work/w1', who: Who = 'admin'): Promise<Read> =>
  world.ask(who, 'POST', `/v1/workers/{worker}/${call}`, { params: { worker } })

it('a worker that claims is in the registry, so that explain knows who would run a job', async () => {
  const world = newWorld()
  const id = await world.waiting()
  await world.queue.pause()
  expect((await world.queue.explain(id)).reasons).toContainEqual(expect.objectContaining({ why: 'no-worker' }))
  await claim(world)
  expect((await world.queue.explain(id)).reasons).toEqual([{ why: 'paused', queue: QUEUE }])
  expect(await world.queue.workers()).toMatchObject([{ id: 'work/w1', names: ['send'], state: 'running' }])
  const call = await world.queue.add('call')
  expect((await world.queue.explain(call.id)).reasons).toContainEqual(expect.objectContaining({ why: 'no-worker' }))
})

it('a worker describes itself, and leaves', async () => {
  const world = newWorld()
  const body = { queues: [QUEUE], host: 'web-3', pid: 811, state: 'paused' }
  const put = await world.ask('work', 'PUT', '/v1/workers/{worker}', { params: { worker: 'w1' }, body })
  expect(put).toMatchObject({ status: 200, body: { state: 'running' } })
  expect(await world.queue.workers()).toMatchObject([{ id: 'work/w1', host: 'web-3', pid: 811, state: 'paused' }])
  await world.ask('work', 'DELETE', '/v1/workers/{worker}', { params: { worker: 'w1' } })
  expect(await world.queue.workers()).toEqual([])
  const other = { ...body, queues: ['other'] }
  expect(
    await world.ask('work', 'PUT', '/v1/workers/{worker}', { params: { worker: 'w1' }, body: other }),
  ).toMatchObject({ status: 403 })
})

it('a worker that is asked to pause is told so by its next answers, gets no jobs, and goes on when it is asked to', async () => {
  const world = newWorld()
  const id = await world.waiting()
  const held = (await claim(world)).body.jobs[0]
  expect((await steer(world, 'pause')).body).toEqual({ state: 'pausing' })
  const beat = await world.ask('work', 'POST', '/v1/jobs/{id}/heartbeat', {
    params: { id },
    body: { fence: held.fence },
  })
  expect(beat.body.state).toBe('pausing')
  await world.waiting()
  expect((await claim(world)).body).toMatchObject({ state: 'pausing', jobs: [] })
  const turn = { worker: 'w1', queues: [QUEUE], done: [{ id, fence: held.fence, complete: {} }] }
  expect((await world.ask('work', 'POST', '/v1/turn', { body: turn })).body).toMatchObject({
    state: 'pausing',
    jobs: [],
    settled: [{ state: 'completed' }],
  })
  expect(await world.queue.workers()).toMatchObject([{ state: 'paused' }])
  await steer(world, 'resume')
  expect((await claim(world)).body).toMatchObject({ state: 'running', jobs: [{}] })
})

it('a claim that waits is answered at once when its worker is asked to stop; later ones wait', async () => {
  let asked = (): void => {}
  const store = closing(observed(memory(), ({ asks }) => void (asks.length > 0 && asked())))
  const world = newWorld({ store })
  const waiting = new Promise<void>((resolve) => (asked = resolve))
  const waits = claim(world, { wait: '25s' })
  await waiting
  await steer(world, 'stop')
  expect((await waits).body).toMatchObject({ state: 'stopping', jobs: [] })
  const later = claim(world, { wait: '25s' })
  await world.waiting()
  await steer(world, 'resume')
  expect((await later).body).toMatchObject({ state: 'running', jobs: [] })
})

it('what is asked of a worker outlives the server', async () => {
  const world = newWorld()
  await claim(world)
  await steer(world, 'stop')
  await world.server.close()
  const later = newWorld({ store: world.store })
  await later.waiting()
  expect((await claim(later)).body).toMatchObject({ state: 'stopping', jobs: [] })
})

it('a worker is asked only if it claims over HTTP from queues of the operator', async () => {
  const world = newWorld()
  expect(await steer(world, 'pause')).toMatchObject({ status: 404, body: { code: 'WORKER_NOT_FOUND' } })
  const worker = newWorker(world.queue, async () => {})
  await worker.run()
  expect(await steer(world, 'pause', worker.id)).toMatchObject({ status: 409, body: { code: 'INVALID_STATE' } })
  await claim(world)
  expect(await steer(world, 'pause', 'work/w1', 'stranger')).toMatchObject({ status: 404 })
  expect(await steer(world, 'pause', 'work/w1', 'everybody')).toMatchObject({ status: 200 })
})
