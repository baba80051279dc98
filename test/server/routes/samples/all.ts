// The samples of all operations. Each route needs one: see operations.test.ts.
import { aboutSamples } from './about.js'
import { storeSamples } from './store.js'
import type { Samples } from './sample.js'

export const samples: Samples = { ...aboutSamples, ...storeSamples }
