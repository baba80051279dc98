// millrace/conformance: the suite that every store passes, free of any test framework.
export type { Harness, ConformanceCase, MakeHarness } from './conformance/harness.js'
export type { CaseResult, ConformanceOptions, ConformanceReport } from './conformance/suite.js'
export { conformanceCases, runCase, runConformance } from './conformance/suite.js'
export type { CompareOptions, Divergence } from './conformance/compare.js'
export { compareStores, compareWalk } from './conformance/compare.js'
export type { WalkStep } from './conformance/walk.js'
export { randomWalk } from './conformance/walk.js'
export { shrinkWalk } from './conformance/shrink.js'

// The port, for those who write a store.
export type {
  Ask,
  Batch,
  Cell,
  Details,
  DetailsPart,
  DetailsQuery,
  Due,
  DueQuery,
  Group,
  Handled,
  JobDetails,
  Landed,
  Notice,
  Page,
  Query,
  Receipt,
  Refused,
  RefusedAsMoved,
  RefusedOtherwise,
  Renewal,
  Revoked,
  RevokedLease,
  Store,
  Tx,
  Verdict,
  WatchOptions,
  Why,
} from './store/store.js'
export { REVOKED_LISTED } from './store/store.js'
export type { Lifetime, QueueTally } from './store/tally.js'
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
export type { Edge, EdgePolicy, EdgeState, JobHeader, JobKind, JobRecord, MovedJob, StepResult } from './job/job.js'
export { ERRORS_KEPT, LOGS_KEPT } from './job/job.js'
export type { StoreEvent, StoreEventType } from './job/events.js'
