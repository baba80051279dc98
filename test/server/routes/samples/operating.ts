// Samples of the routes that operate.
import { QUEUE } from '../world.js'
import type { Parts, World } from '../world.js'
import type { Sample, Samples } from './sample.js'

const where = { state: 'failed' }
const inQueue = (parts: Parts = {}): Sample => ({ parts: () => ({ params: { queue: QUEUE }, ...parts }) })
const failed = (parts: Parts = {}): Sample => ({
  parts: async (world: World) => ({ params: { id: await world.failed() }, ...parts }),
})
const delayed = (parts: Parts = {}): Sample => ({
  parts: async ({ queue }: World) => {
    return { params: { id: (await queue.add('send', null, { delay: '1h' })).id }, ...parts }
  },
})
const scheduled = (parts: Parts = {}): Sample => ({
  async parts({ queue }: World) {
    await queue.schedule('nightly', { name: 'send', every: '1h', start: Date.now() - 10_000_000 })
    return { params: { queue: QUEUE, key: 'nightly' }, ...parts }
  },
})
const operation = (paused = false): Sample => ({
  async parts(world: World) {
    // It does not end before it is steered: it changes one job an hour.
    for (let n = 0; n < 2; n++) await world.failed()
    const rate = { max: 1, per: '1h' } as const
    const made = await world.queue.operate({ do: 'retry', where: { state: 'failed' }, rate })
    if (paused) await made.pause()
    return { params: { queue: QUEUE, id: made.id } }
  },
})

export const operatingSamples: Samples = {
  'POST /v1/jobs/{id}/cancel': delayed({ body: { reason: 'not wanted', cascade: true } }),
  'POST /v1/jobs/{id}/retry': failed({ body: { reason: 'try again' } }),
  'POST /v1/jobs/{id}/promote': delayed({ body: { reason: 'now' } }),
  'POST /v1/jobs/{id}/redeliver': {
    async parts({ queue }) {
      const job = await queue.add('send', null, { attempts: 1, webhook: 'https://example.com/hook' })
      await job.fail(new Error('as the sample needs it'))
      return { params: { id: job.id }, body: { reason: 'it was lost' } }
    },
  },
  'PATCH /v1/jobs/{id}': delayed({ body: { data: { to: 'bob' }, priority: 3, delay: '2m', reason: 'later' } }),
  'DELETE /v1/jobs/{id}': failed({ query: { cascade: '0', reason: 'clean up' } }),
  'POST /v1/queues/{queue}/cancel': inQueue({ body: { where: { state: 'waiting' }, cascade: true, reason: 'stop' } }),
  'POST /v1/queues/{queue}/retry': inQueue({ body: { where, rate: { max: 50, per: '1s' }, reason: 'again' } }),
  'POST /v1/queues/{queue}/promote': inQueue({ body: { where: { state: 'delayed' }, dryRun: true } }),
  'POST /v1/queues/{queue}/remove': inQueue({ body: { where, cascade: false } }),
  'POST /v1/queues/{queue}/update': inQueue({ body: { where: { state: 'waiting' }, changes: { priority: 3 } } }),
  'POST /v1/queues/{queue}/operations/{id}/pause': operation(),
  'POST /v1/queues/{queue}/operations/{id}/resume': operation(true),
  'POST /v1/queues/{queue}/operations/{id}/cancel': operation(),
  'POST /v1/queues/{queue}/pause': inQueue({ body: { name: 'send', reason: 'the provider is down' } }),
  'POST /v1/queues/{queue}/resume': inQueue({ body: { name: 'send', reason: 'it is back' } }),
  'POST /v1/queues/{queue}/hold': inQueue({ body: { for: '10m', name: 'send', reason: 'too many' } }),
  'POST /v1/queues/{queue}/unhold': inQueue({ body: { name: 'send', reason: 'enough' } }),
  'PATCH /v1/queues/{queue}/limits': inQueue({ body: { concurrency: 100 } }),
  'POST /v1/queues/{queue}/marks': inQueue({ body: { text: 'deploy 4f2' } }),
  'PUT /v1/queues/{queue}/schedules/{key}': {
    parts: () => ({ params: { queue: QUEUE, key: 'nightly' }, body: { name: 'send', every: '1h' } }),
  },
  'DELETE /v1/queues/{queue}/schedules/{key}': scheduled({ query: { reason: 'no longer' } }),
  'POST /v1/queues/{queue}/schedules/{key}/run': scheduled({ body: { overlap: 'allow', reason: 'now' } }),
  'POST /v1/queues/{queue}/schedules/{key}/pause': scheduled({ body: { reason: 'holiday' } }),
  'POST /v1/queues/{queue}/schedules/{key}/resume': scheduled({ body: { reason: 'back' } }),
  'POST /v1/queues/{queue}/schedules/{key}/backfill': scheduled({
    body: { from: '2026-01-01T00:00:00Z', to: '2026-01-01T02:00:00Z', overlap: 'allow', reason: 'missed' },
  }),
}
