// testing.ts: the door of the tools for tests: the virtual clock and the seeded simulator.
export { virtualClock } from './testing/world/clock.js'
export type { VirtualClock, VirtualClockOptions } from './testing/world/clock.js'
export { generateScript } from './testing/script/generate.js'
export type { SimulatedProcess } from './testing/world/process.js'
export type {
  Act,
  Fault,
  JobPlan,
  Operation,
  ProcessStep,
  Script,
  SimulationSettings,
  Step,
} from './testing/script/script.js'
export { runSeeds } from './testing/seeds.js'
export type { SeedsOptions, SeedsReport } from './testing/seeds.js'
export { shrinkScript } from './testing/script/shrink.js'
export { runScript } from './testing/play.js'
export type { RunScriptOptions, SimulationReport } from './testing/play.js'
export { rules } from './testing/check/violation.js'
export type { Rule, Violation } from './testing/check/violation.js'
export { describeFailure, simulate, simulateSeeds } from './testing/simulate.js'
export type { SimulateOptions, SimulatedJob } from './testing/simulate.js'
