// millrace/conformance: the suite that every store passes, free of any test framework.
export type { Harness, ConformanceCase, MakeHarness } from './store/conformance/harness.js'
export type { CaseResult, ConformanceOptions, ConformanceReport } from './store/conformance/suite.js'
export { conformanceCases, runCase, runConformance } from './store/conformance/suite.js'
export type { CompareOptions, Divergence } from './store/conformance/compare.js'
export { compareStores, compareWalk } from './store/conformance/compare.js'
export type { WalkStep } from './store/conformance/walk.js'
export { randomWalk } from './store/conformance/walk.js'
export { shrinkWalk } from './store/conformance/shrink.js'
