// Samples of the routes that add jobs, wait for their ends and send signals.
import { QUEUE } from '../world.js'
import type { Samples } from './sample.js'

const params = { queue: QUEUE }

export const producingSamples: Samples = {
  'POST /v1/queues/{queue}/jobs': { parts: () => ({ params, body: { name: 'send', data: { to: 'ann' } } }) },
  'POST /v1/queues/{queue}/bulk': {
    parts: () => ({
      params,
      body: {
        jobs: [
          { name: 'send', data: 1 },
          { name: 'send', options: { priority: 2 } },
        ],
      },
    }),
  },
  'POST /v1/flows': {
    parts: () => ({
      body: { name: 'report', queueName: QUEUE, data: null, children: [{ name: 'page', queueName: QUEUE, data: 1 }] },
    }),
  },
  'GET /v1/jobs/{id}/result': {
    parts: async ({ waiting }) => ({ params: { id: await waiting() }, query: { wait: '1' } }),
  },
  'POST /v1/jobs/{id}/signals/{name}': {
    parts: async ({ waiting }) => ({ params: { id: await waiting(), name: 'go' }, body: { data: { ok: true } } }),
  },
}
