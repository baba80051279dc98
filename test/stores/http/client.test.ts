// The typed calls of a broker: submit, claim, heartbeat, complete.
import { expect, it } from 'vitest'
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList } from 'millrace/server'
import { httpClient } from '../../../src/stores/http/client.js'
import type { HttpClient } from '../../../src/stores/http/client.js'
import { closing } from '../../setup.js'

const { token, entry } = createToken({ name: 'app', roles: ['produce', 'work'], queues: ['mail'] })

/** A server on a store, and a client whose answers are lost as often as it says. */
function newWorld(lost = 0): { readonly queue: Queue; readonly client: HttpClient; readonly sent: () => number } {
  const store = closing(memory())
  const server = closing(serve({ store, auth: tokenList([entry]), logger: false }))
  let sent = 0
  const losing: typeof fetch = async (url, init) => {
    const response = await server.fetch(new Request(url, init))
    if (sent++ < lost) throw new TypeError('fetch failed')
    return response
  }
  const queue = closing(new Queue('mail', { store, logger: false }))
  return { queue, client: httpClient('http://localhost/', { token, fetch: losing }), sent: () => sent }
}

it('submits, claims, renews and completes a job', async () => {
  const { queue, client } = newWorld()
  const { id, state } = await client.submitJob('mail', 'send', { to: 'ann' }, { options: { priority: 2 } })
  expect(state).toBe('waiting')
  const { job, state: asked } = await client.claimJob<{ to: string }>({ worker: 'w', queues: ['mail'], lease: '1m' })
  expect({ job, asked }).toMatchObject({ job: { id, data: { to: 'ann' }, leaseMs: 60_000 }, asked: 'running' })
  expect(await client.heartbeat(job!)).toMatchObject({ leaseMs: 60_000 })
  expect(await client.completeJob(job!, { sent: true })).toEqual({ state: 'completed', repeated: false })
  expect((await queue.get(id))!.returned).toEqual({ sent: true })
  expect((await client.claimJob({ worker: 'w', queues: ['mail'] })).job).toBeUndefined()
})

it('fails, snoozes and releases', async () => {
  const { queue, client } = newWorld()
  await queue.add('send')
  const claim = async (): ReturnType<HttpClient['claimJob']> => client.claimJob({ worker: 'w', queues: ['mail'] })
  const first = (await claim()).job!
  expect(await client.releaseJob(first)).toMatchObject({ state: 'waiting' })
  const second = (await claim()).job!
  expect(await client.snoozeJob(second, 0)).toMatchObject({ state: 'waiting' })
  const third = (await claim()).job!
  expect(await client.failJob(third, new RangeError('too far'), { retry: false })).toMatchObject({ state: 'failed' })
  expect((await queue.get(third.id))!.errors).toMatchObject([{ name: 'RangeError', message: 'too far' }])
})

it('submits a job once although the answer is lost', async () => {
  const { queue, client, sent } = newWorld(1)
  const { duplicate } = await client.submitJob('mail', 'send', 1)
  expect({ duplicate, sent: sent() }).toEqual({ duplicate: true, sent: 2 })
  expect(await queue.counts()).toMatchObject({ waiting: 1 })
})

it('gets the same job, and settles it once, although the answers are lost', async () => {
  const store = closing(memory())
  const server = closing(serve({ store, auth: tokenList([entry]), logger: false }))
  const paths: string[] = []
  const everyFirstLost: typeof fetch = async (url, init) => {
    const request = new Request(url, init)
    const { pathname } = new URL(request.url)
    const response = await server.fetch(request)
    paths.push(pathname)
    if (paths.filter((each) => each === pathname).length === 1) throw new TypeError('fetch failed')
    return response
  }
  const client = httpClient('http://localhost', { token, fetch: everyFirstLost })
  const queue = closing(new Queue('mail', { store, logger: false }))
  for (const n of [1, 2]) await queue.add('send', n)
  const { job } = await client.claimJob({ worker: 'w', queues: ['mail'] })
  expect(await queue.counts()).toMatchObject({ waiting: 1, active: 1 })
  expect(await client.completeJob(job!)).toEqual({ state: 'completed', repeated: true })
})

it('rejects with the code and the details of the server', async () => {
  const { queue, client } = newWorld()
  await queue.add('send')
  const { job } = await client.claimJob({ worker: 'w', queues: ['mail'] })
  await (await queue.get(job!.id))!.cancel({ reason: 'stop it' })
  await expect(client.heartbeat(job!)).rejects.toMatchObject({
    code: 'LEASE_LOST',
    details: { status: 409, reason: 'cancelled', cancelReason: 'stop it' },
  })
  await expect(client.submitJob('other', 'send')).rejects.toMatchObject({ code: 'FORBIDDEN' })
})

it('gives up after its patience, and ends with its signal', async () => {
  const away: typeof fetch = async () => {
    throw new TypeError('fetch failed')
  }
  const client = httpClient('http://localhost', { patience: 1, fetch: away })
  await expect(client.submitJob('mail', 'send')).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
  const gone = new AbortController()
  gone.abort(new Error('gone'))
  const patient = httpClient('http://localhost', { patience: '1h', fetch: away })
  await expect(patient.submitJob('mail', 'send', 1, { signal: gone.signal })).rejects.toThrow('gone')
  expect(() => httpClient('mail')).toThrow('must be the URL of a server')
})
