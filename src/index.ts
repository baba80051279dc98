// index.ts: the front door of millrace: re-exports only.
export { verifyWebhook } from './features/webhooks/sign.js'
export type { ReceivedHeaders, VerifyOptions, WebhookMessage } from './features/webhooks/sign.js'
export { webhooks } from './features/webhooks/webhooks.js'
export type { BreakerOptions, WebhookOptions } from './features/webhooks/webhooks.js'
export type { Address, Lookup } from './features/webhooks/post.js'
export { errorCatalogue } from './job/catalogue.js'
export type { ErrorEntry } from './job/catalogue-stores.js'
export { MillraceError, UnrecoverableError, isMillraceError } from './job/errors.js'
export type { ErrorCode } from './job/errors.js'
export type { Duration } from './job/duration.js'
export type {
  AttemptError,
  Dedup,
  EdgeError,
  ErrorInfo,
  FailurePolicy,
  FinishedState,
  JobState,
  LogLine,
} from './job/job.js'
export type { Jsonable } from './job/json.js'
export type { DeliveryEntry, PhaseStatus } from './job/memo.js'
export type { JobPhase, JobPhases } from './job/phases.js'
export type { BackoffOptions, CustomBackoff } from './job/retry.js'
export type {
  CatchUp,
  CronOptions,
  EveryOptions,
  Overlap,
  ScheduleTimes,
  Timing,
  TimingOptions,
} from './job/schedule-times.js'
export type { CancelArgument, CancelOptions, CascadeArgument, CascadeOptions } from './queue/operations/cascade.js'
export type { Chain, CurrentJob } from './queue/flows/chain.js'
export { storeCounts } from './queue/counts.js'
export type { CountOptions, QueueCounts, StateCounts } from './queue/counts.js'
export { defineJobs, job, typed, withSchemas } from './queue/define.js'
export { FlowProducer } from './queue/flows/flow.js'
export type { Flow, FlowJob, FlowJobOptions, FlowJobs, FlowProducerOptions, FlowQueue } from './queue/flows/flow.js'
export type {
  ChainResult,
  ContinuationOf,
  DependenciesOf,
  DependencyPage,
  Ended,
  EndedOf,
} from './queue/flows/chain-types.js'
export type {
  AfterOf,
  DataOf,
  InputOf,
  HandlerReturnOf,
  JobDefinition,
  JobDefinitions,
  JobOptions,
  NameOf,
  NextOf,
  OwnResultOf,
  PhasesOf,
  ResultOf,
  ReturnOf,
  SchemasFor,
  Upgrade,
  WithSchemas,
} from './queue/define.js'
export type { Delivered, EventBase, EventOf, EventType, Listener, Logger, QueueEvent } from './queue/events/events.js'
export type { Explanation, Reason } from './queue/explain.js'
export { Job } from './queue/job.js'
export type { ObserveOptions, ResultOptions, UpdateOptions } from './queue/job.js'
export type { LogOptions } from './queue/operations/logs.js'
export type { RetryOptions } from './queue/operations/retry.js'
export type {
  BoundOptions,
  GroupOptions,
  LimitOptions,
  Limits,
  OneGroupOptions,
  RateOptions,
  StandingBound,
  StandingGroupBound,
} from './queue/settings/limits.js'
export type {
  AddOptions,
  DedupOptions,
  Dependency,
  JobDefaults,
  JobWebhookOptions,
  RepeatOptions,
} from './queue/add-options.js'
export { prometheus } from './features/prometheus.js'
export type { PrometheusEndpoint, PrometheusOptions } from './features/prometheus.js'
export { telemetry } from './features/telemetry.js'
export type { MeterLike, TelemetryOptions, TracerLike } from './features/telemetry.js'
export { Queue } from './queue/queue.js'
export type { RetentionOptions, RetentionRule } from './queue/settings/retention.js'
export type { RunOptions, Schedule, ScheduleOptions, SchedulePage } from './queue/settings/schedules.js'
export type { Completing, Inside, PlanArguments, Planned, Planning } from './queue/flows/follow-ups.js'
export { eventStreamHeaders } from './queue/events/sse.js'
export type { EventStream, EventStreamOptions, StreamEventType, StreamSnapshot } from './queue/events/sse.js'
export type { JobFilter, ListOptions, PageOptions, PageWish } from './queue/operations/filter.js'
export type { Telemetry } from './queue/telemetry.js'
export type { AddArguments, AnyJobs, BulkItem, Declaring, JobOf, JobPage, QueueOptions } from './queue/queue-types.js'
export type { InTransaction, TransactionArgument, TransactionWork, WithTransaction } from './queue/transactions.js'
export type { Origin, Processes } from './store/processes.js'
export type { JobWebhook, Webhooks } from './queue/settings/webhook.js'
export type { Runtime, Stop } from './store/runtime.js'
export type { SqlRow, SqlTransaction } from './store/sql.js'
export type { GivenBy, Store, TakenBy } from './store/store.js'
export type {
  BatchContext,
  BatchHandler,
  BatchHandlerOptions,
  BatchOptions,
  BatchedContext,
} from './worker/batches/types.js'
export { JobAbort, middleware } from './worker/attempt/context.js'
export type {
  AbortReason,
  ExtrasOf,
  JobContext,
  JobSignal,
  Middleware,
  Mode,
  PrepareOptions,
  SignalOptions,
} from './worker/attempt/context.js'
export type { WaitOptions } from './worker/attempt/children.js'
export type {
  BatchHandlerOf,
  ContextOf,
  HandledJob,
  Handler,
  HandlerOf,
  Handling,
  HandlerOptions,
  Handlers,
  PhasesHandlerOf,
} from './worker/handlers.js'
export type { WorkerOptions } from './worker/options.js'
export { phases } from './worker/phases/types.js'
export type {
  AnyPhases,
  Exactly,
  FreePhases,
  PhaseContext,
  PhaseMethods,
  PhaseOptions,
  PhaseRunner,
  Phases,
} from './worker/phases/types.js'
export { shutdown } from './worker/shutdown.js'
export type { Closable } from './worker/shutdown.js'
export { Worker } from './worker/worker.js'
export type { WorkerEventType } from './worker/worker.js'
export type { CloseOptions } from './worker/close.js'
