// The samples of all operations. Each route needs one: see operations.test.ts.
import { aboutSamples } from './about.js'
import { producingSamples } from './producing.js'
import { operatingSamples } from './operating.js'
import { readingSamples } from './reading.js'
import type { Samples } from './sample.js'
import { storeSamples } from './store.js'
import { workingSamples } from './working.js'

export const samples: Samples = {
  ...aboutSamples,
  ...readingSamples,
  ...producingSamples,
  ...workingSamples,
  ...operatingSamples,
  ...storeSamples,
}
