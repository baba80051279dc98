// Samples of the store protocol. What is wrong with their bodies is tested in test/server/store-protocol.
import { wire } from '../../../../src/store/wire/wire.js'
import type { Sample, Samples } from './sample.js'

const headers = { 'millrace-protocol': '1' }
const sample = (text: string): Sample => ({ parts: () => ({ headers, body: JSON.parse(text) }), loose: true })

export const storeSamples: Samples = {
  'GET /v1/store': {},
  'POST /v1/store/commit': sample(
    wire.commit.request.encode({ writer: 'w', seq: 1, groups: [], renewals: [], asks: [] }),
  ),
  'POST /v1/store/get': sample(wire.get.request.encode(['a'])),
  'POST /v1/store/find': sample(wire.find.request.encode({ queue: 'mail' })),
  'POST /v1/store/details': sample(wire.details.request.encode({ jobs: ['a'] })),
  'POST /v1/store/tally': sample(wire.tally.request.encode({ queues: ['mail'], options: undefined })),
  'POST /v1/store/due': sample(wire.due.request.encode({ queues: ['mail'], except: [], limit: 10 })),
  'GET /v1/store/watch': { parts: () => ({ headers }) },
}
