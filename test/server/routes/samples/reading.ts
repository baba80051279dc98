// Samples of the routes that read.
import { QUEUE } from '../world.js'
import type { World } from '../world.js'
import type { Parts } from '../world.js'
import type { Sample, Samples } from './sample.js'

const inQueue = (parts: Parts = {}): Sample => ({ parts: () => ({ params: { queue: QUEUE }, ...parts }) })
const ofJob = (parts: Parts = {}): Sample => ({
  parts: async (world: World) => ({ params: { id: await world.failed() }, ...parts }),
})

export const readingSamples: Samples = {
  'GET /v1/queues': { parts: () => ({ query: { limit: '10' } }) },
  'GET /v1/queues/{queue}': inQueue(),
  'GET /v1/queues/{queue}/health': inQueue(),
  'GET /v1/queues/{queue}/count': inQueue({ query: { state: 'failed' } }),
  'GET /v1/queues/{queue}/series': inQueue({ query: { step: 'minute', by: 'name' } }),
  'GET /v1/queues/{queue}/errors': inQueue({ query: { limit: '10' } }),
  'GET /v1/queues/{queue}/limits': inQueue(),
  'GET /v1/queues/{queue}/workers': inQueue(),
  'GET /v1/queues/{queue}/schedules': inQueue({ query: { runs: '3' } }),
  'GET /v1/queues/{queue}/schedules/{key}': {
    async parts(world) {
      await world.queue.schedule('nightly', { name: 'send', every: '1h' })
      return { params: { queue: QUEUE, key: 'nightly' } }
    },
  },
  'GET /v1/schedules': {},
  'GET /v1/queues/{queue}/jobs': inQueue({ query: { state: 'failed,waiting', order: 'newest', limit: '10' } }),
  'GET /v1/jobs/{id}': ofJob({ query: { include: 'logs,steps,edges,history,timeline,explain' } }),
  'GET /v1/jobs/{id}/explain': ofJob(),
  'GET /v1/jobs/{id}/attempts': ofJob(),
  'GET /v1/jobs/{id}/steps': ofJob(),
  'GET /v1/jobs/{id}/timeline': ofJob(),
  'GET /v1/jobs/{id}/logs': ofJob({ query: { after: '0', limit: '10' } }),
  'GET /v1/jobs/{id}/graph': ofJob(),
  'GET /v1/search': { parts: () => ({ query: { q: 'state:failed' } }) },
  'GET /metrics': {},
  'GET /v1/attention': {},
  'GET /v1/workers': { parts: () => ({ query: { running: '1' } }) },
  'GET /v1/audit': {},
  'GET /v1/queues/{queue}/events': inQueue(),
  'GET /v1/events': {},
  'GET /v1/live': {},
  'GET /v1/jobs/{id}/live': ofJob(),
  'GET /v1/queues/{queue}/operations': inQueue(),
  'GET /v1/queues/{queue}/operations/{id}': {
    async parts({ queue }) {
      const { id } = await queue.operate({ do: 'retry', where: { state: 'failed' } })
      return { params: { queue: QUEUE, id } }
    },
  },
  'POST /v1/session': { parts: (world) => ({ headers: { authorization: `Bearer ${world.tokenOf('read')}` } }) },
  'DELETE /v1/session': {},
}
