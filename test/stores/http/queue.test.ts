// What a queue on a remote store refuses when it is made, and what its worker leaves to the server.
import { expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { http } from 'millrace/http'
import { memory } from 'millrace/memory'
import { webhooks } from 'millrace/webhooks'
import { closing, event } from '../../setup.js'
import { thrown } from '../../thrown.js'
import { serveStore } from './bare-server.js'

it('a queue on a remote store takes no secrets of webhooks, and no callbacks of retention', () => {
  const store: Store = closing(http('http://127.0.0.1:1'))
  const webhook = webhooks({ url: 'https://example.com', secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' })
  const refused = { code: 'UPKEEP_ELSEWHERE' }
  expect(thrown(() => new Queue('mail', { store, webhook }))).toMatchObject(refused)
  expect(thrown(() => new Queue('mail', { store, retention: { onStale: () => {} } }))).toMatchObject(refused)
  expect(thrown(() => new Queue('mail', { store, retention: { onDelete: () => {} } }))).toMatchObject(refused)
  closing(new Queue('mail', { store, logger: false, retention: { deleteAfter: '1d' } }))
})

it('its workers do no upkeep: they never ask what is due', async () => {
  const behind = closing(memory())
  const server = closing(await serveStore(behind))
  const asked: string[] = []
  const fetch = (url: string, init: RequestInit): Promise<Response> => {
    if (typeof init.body === 'string' && url.endsWith('/due')) asked.push(init.body)
    return server.fetch(new Request(url, init))
  }
  const store = closing(http(server.url, { fetch }))
  const queue = closing(new Queue('mail', { store, logger: false }))
  // A job that is due at once, and one whose upkeep a worker would begin with.
  await queue.add('send', 1, { delay: 1 })
  const worker = closing(new Worker(queue, () => {}, { logger: false, upkeepEvery: 1 }))
  const done = event(queue, 'completed')
  await queue.add('send', 2)
  await done
  await worker.close()
  expect(asked.filter((body) => body.includes('mail'))).toEqual([])
  const left = await behind.find({ queue: 'mail', states: ['delayed'] })
  expect(left.items).toHaveLength(1)
})

it('a claimed job names a worker that begins with the name of the token', async () => {
  const behind = closing(memory())
  const server = closing(await serveStore(behind))
  const own = (url: string, init: RequestInit): Promise<Response> => server.fetch(new Request(url, init))
  const store = closing(http(server.url, { fetch: own, token: 'mrt_team.c2VjcmV0' }))
  const queue = closing(new Queue('mail', { store, logger: false }))
  const { id } = await queue.add('send')
  const [claimed] = await queue.claim({ lease: '1m', worker: 'loop' })
  expect((await behind.get([id]))[0]).toMatchObject({ worker: 'team/loop', state: 'active' })
  await claimed!.complete()
})
