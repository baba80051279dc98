// The samples of all operations. Each route needs one: see operations.test.ts.
import { aboutSamples } from './about.js'
import { producingSamples } from './producing.js'
import type { Samples } from './sample.js'
import { storeSamples } from './store.js'
import { workingSamples } from './working.js'

export const samples: Samples = { ...aboutSamples, ...producingSamples, ...workingSamples, ...storeSamples }
