// The samples of all operations. Each route needs one: see operations.test.ts.
import { aboutSamples } from './about.js'
import { operatingSamples } from './operating.js'
import { readingSamples } from './reading.js'
import type { Samples } from './sample.js'

export const samples: Samples = { ...aboutSamples, ...readingSamples, ...operatingSamples }
