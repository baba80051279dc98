// millrace/conformance: the suite that every store passes, free of any test framework, and the types of the port.
export type { Harness, ConformanceCase, MakeHarness } from './conformance/harness.js'
export type { CaseResult, ConformanceOptions, ConformanceReport } from './conformance/suite.js'
export { conformanceCases, runCase, runConformance } from './conformance/suite.js'
export type { CompareOptions, Divergence } from './conformance/compare.js'
export { compareStores, compareWalk } from './conformance/compare.js'
export type { WalkStep } from './conformance/walk.js'
export { randomWalk } from './conformance/walk.js'
export { shrinkWalk } from './conformance/shrink.js'

// The port: what a store implements.
export type {
  Details,
  DetailsPart,
  DetailsQuery,
  DisposableStore,
  Due,
  DueQuery,
  JobDetails,
  Notice,
  Page,
  Query,
  Revoked,
  RevokedLease,
  Store,
  Tx,
  WatchOptions,
} from './store/store.js'
export type { Lifetime, QueueTally } from './store/tally.js'
export type { Runtime, Stop } from './store/runtime.js'

// What a store is sent, and what it answers.
export type {
  Ask,
  Batch,
  Cell,
  Group,
  Handled,
  Landed,
  Receipt,
  Refused,
  RefusedAsMoved,
  RefusedOtherwise,
  Renewal,
  Verdict,
  Why,
} from './store/batch.js'
export type {
  CellEvent,
  Change,
  Insert,
  Move,
  MoveFields,
  NewEdge,
  NewJob,
  Note,
  NoteEvent,
  Put,
  Release,
  When,
} from './job/change.js'

// What a store keeps, and publishes.
export type {
  AttemptError,
  Dedup,
  Edge,
  EdgeError,
  EdgePolicy,
  EdgeState,
  ErrorInfo,
  Extras,
  FailurePolicy,
  FinishedState,
  JobHeader,
  JobKind,
  JobRecord,
  JobState,
  Keep,
  KeepByState,
  LogLine,
  Millis,
  MovedJob,
  StepResult,
  Time,
  Webhook,
} from './job/job.js'
export type { StoreEvent, StoreEventType } from './job/events.js'
export type { Backoff } from './job/retry.js'
export type { JsonText } from './job/values/json.js'
