// Claims over real connections: a client that goes is noticed, and a server that closes waits for nobody.
import { Agent, request } from 'node:http'
import { expect, it } from 'vitest'
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { serve } from 'millrace/server'
import type { Server } from 'millrace/server'
import { observed } from '../../observed-store.js'
import type { Store } from '../../../src/store/store.js'
import { closing, gate } from '../../setup.js'

interface World {
  readonly queue: Queue
  readonly server: Server
  readonly url: string
  /** Sends a claim that waits; `go` breaks the connection. */
  claim(worker: string): { readonly answer: Promise<{ readonly jobs: readonly { readonly id: string }[] }>; go(): void }
  /** Resolves when the next claim has found nothing, and waits. */
  waiting(): Promise<void>
}

async function newWorld(claimed: () => Promise<void> = async () => {}): Promise<World> {
  let asked = (): void => {}
  const inner = memory()
  const store: Store = closing({
    ...observed(inner, () => {}),
    commit: async (batch) => {
      const receipt = await inner.commit(batch)
      if (receipt.asks.some((jobs) => jobs.length > 0)) await claimed()
      else if (receipt.asks.length > 0) asked()
      return receipt
    },
  })
  const server = closing(serve({ store, logger: false }))
  const { port, url } = await server.listen({ port: 0 })
  const agent = new Agent({ keepAlive: true })
  return {
    queue: closing(new Queue('mail', { store, logger: false })),
    server,
    url,
    waiting: () => new Promise((resolve) => (asked = resolve)),
    claim(worker) {
      const headers = { 'content-type': 'application/json' }
      const sent = request({ port, method: 'POST', path: '/v1/claims', agent, headers })
      const answer = new Promise<{ jobs: { id: string }[] }>((resolve, reject) => {
        sent.on('error', reject)
        sent.on('response', (response) => {
          let text = ''
          response.on('data', (chunk) => (text += String(chunk)))
          response.on('end', () => resolve(JSON.parse(text) as { jobs: { id: string }[] }))
        })
      })
      answer.catch(() => {})
      sent.end(JSON.stringify({ worker, queues: ['mail'], wait: '25s' }))
      return { answer, go: () => void sent.destroy() }
    },
  }
}

it('a client that goes while it waits gets no job', async () => {
  const { queue, claim, waiting } = await newWorld()
  const empty = waiting()
  const first = claim('a')
  await empty
  const second = claim('b')
  first.go()
  // The server learns that the connection is gone before it reads a request that was sent after that.
  const third = claim('c')
  await queue.add('send', 1)
  await queue.add('send', 2)
  const got = await Promise.all([second.answer, third.answer])
  expect(got.map(({ jobs }) => jobs.length)).toEqual([1, 1])
})

it('a client that goes while its claim is on its way hands the job back, with its attempt', async () => {
  let held = (): void => {}
  const answers = gate()
  const claiming = new Promise<void>((resolve) => (held = resolve))
  const { queue, server, url, claim, waiting } = await newWorld(() => {
    held()
    return answers.promise
  })
  const empty = waiting()
  const first = claim('a')
  await empty
  const added = queue.add('send', 1, { id: 'mine' })
  await claiming // the store has claimed it, and the server does not know yet
  first.go()
  for (let n = 0; n < 3; n++) await fetch(`${url}/healthz`) // the server has seen the connection end
  answers.open()
  await added
  const { jobs } = await claim('b').answer
  expect(jobs).toMatchObject([{ id: 'mine', attempt: 1 }])
  await server.close()
})

it('a server that closes answers the claims that wait, and ends their connections', async () => {
  const { server, claim, waiting } = await newWorld()
  const empty = waiting()
  const { answer } = claim('a')
  await empty
  await server.close()
  expect((await answer).jobs).toEqual([])
})
