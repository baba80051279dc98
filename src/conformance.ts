// millrace/conformance: the suite that every store passes, free of any test framework.
export type { Harness, ConformanceCase, MakeHarness } from './conformance/harness.js'
export type { CaseResult, ConformanceOptions, ConformanceReport } from './conformance/suite.js'
export { conformanceCases, runCase, runConformance } from './conformance/suite.js'
export type { CompareOptions, Divergence } from './conformance/compare.js'
export { compareStores, compareWalk } from './conformance/compare.js'
export type { WalkStep } from './conformance/walk.js'
export { randomWalk } from './conformance/walk.js'
export { shrinkWalk } from './conformance/shrink.js'
