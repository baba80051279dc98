// testing.ts: the door of the tools for tests: queues and contexts for tests, the virtual clock, the seeded simulator.
export { testQueue } from './testing/queue/test-queue.js'
export type { Drained, TestQueue } from './testing/queue/test-queue.js'
export type {
  DrainOptions,
  RunOneOptions,
  TestHandlers,
  TestQueueOptions,
  TestWorkerOptions,
} from './testing/queue/options.js'
export type { RunEnd, TestRun } from './testing/queue/runs.js'
export type { AddedJob, AddedOf, AddedOptions } from './testing/queue/added.js'
export type { Match } from './testing/queue/match.js'
export { testContext } from './testing/queue/context.js'
export type { Recorded, TestContext, TestContextArguments, TestContextOptions } from './testing/queue/context.js'
export { millraceMatchers } from './testing/queue/matchers.js'
export type { MatcherResult, MillraceMatchers } from './testing/queue/matchers.js'
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
