// Samples of the routes of workers: claims, the calls about a held job, turns, and the registry.
import { QUEUE } from '../world.js'
import type { World } from '../world.js'
import type { Sample, Samples } from './sample.js'

/** A request about a job that the worker holds, with these fields besides the fence. */
const held = (fields: object = {}, params: Readonly<Record<string, string>> = {}): Sample => ({
  parts: async (world) => {
    const { id, fence } = await world.leased()
    return { params: { id, ...params }, body: { fence, ...fields } }
  },
})

/** A request about a worker that has claimed. */
const worker = async ({ leased }: World): Promise<{ readonly params: Readonly<Record<string, string>> }> => {
  await leased()
  return { params: { worker: 'work/w1' } }
}

export const workingSamples: Samples = {
  'POST /v1/claims': {
    parts: async ({ waiting }) => {
      await waiting()
      return { body: { worker: 'w1', queues: [QUEUE], names: ['send'], max: 10, lease: '30s', include: ['steps'] } }
    },
  },
  'POST /v1/jobs/{id}/heartbeat': held({ lease: '1m' }),
  'POST /v1/jobs/{id}/progress': held({ progress: { done: 1 } }),
  'POST /v1/jobs/{id}/log': held({ lines: ['one', 'two'] }),
  'PUT /v1/jobs/{id}/steps/{name}': held({ result: 7 }, { name: 'charge' }),
  'POST /v1/jobs/{id}/complete': held({ result: { sent: true }, add: [{ name: 'call', data: 1 }] }),
  'POST /v1/jobs/{id}/fail': held({ error: { name: 'TimeoutError', message: 'no answer' }, in: '1m' }),
  'POST /v1/jobs/{id}/snooze': held({ for: '5m' }),
  'POST /v1/jobs/{id}/release': held(),
  'POST /v1/jobs/{id}/hold': held({ for: '1m', of: 'queue' }),
  'POST /v1/turn': {
    parts: async (world) => {
      const [first, second] = [await world.leased(), await world.leased()]
      const beat = [{ id: first.id, fence: first.fence }]
      const done = [{ id: second.id, fence: second.fence, complete: { result: 1 } }]
      return { body: { worker: 'w1', queues: [QUEUE], max: 1, beat, done } }
    },
  },
  'PUT /v1/workers/{worker}': {
    parts: () => ({ params: { worker: 'w1' }, body: { queues: [QUEUE], names: ['send'], host: 'web-3', pid: 811 } }),
  },
  'DELETE /v1/workers/{worker}': { parts: worker },
  'POST /v1/workers/{worker}/pause': { parts: worker },
  'POST /v1/workers/{worker}/resume': { parts: worker },
  'POST /v1/workers/{worker}/stop': { parts: worker },
}
