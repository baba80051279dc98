// index.ts: the front door of millrace, sorted by what a user looks for: re-exports only.

// Queues and jobs
export { Queue } from './worker/claims/queue.js'
export type { QueueOptions, BulkItem, JobOf, JobPage } from './queue/queue-types.js'
export type {
  AddOptions,
  JobDefaults,
  KeepLastOptions,
  DedupOptions,
  Dependency,
  RepeatOptions,
} from './queue/add-options.js'
export { Job } from './queue/job.js'
export type { JobState, FinishedState, LogLine, ErrorInfo, AttemptError, Dedup } from './job/job.js'
export type { AllJobs, JobFilter, PageOptions } from './queue/operations/filter.js'
export type { ErrorFilter, Moment, MomentRange, TagFilter } from './queue/operations/filter-terms.js'
export type { ErrorsOptions, ErrorsPage, FailingJobs, MatchCount } from './queue/operations/failing-jobs.js'
export type { ListOptions } from './queue/operations/list.js'
export type { SearchValues } from './queue/operations/search.js'
export type { UpdateOptions, ResultOptions, ObserveOptions, ObserveFieldsOptions, JobField } from './queue/job.js'
export type { RetryOptions } from './queue/operations/operations.js'
export type { CancelOptions, CascadeOptions } from './queue/operations/cascade.js'
export { Operation } from './queue/operations/bulk/operation.js'
export type { OperationPage, OperationState } from './queue/operations/bulk/operation.js'
export type { OperateOptions, OperationRate, OperationRequest } from './queue/operations/bulk/options.js'
export type { OperationPlan, PlannedJob } from './queue/operations/bulk/plan.js'
export type { BulkAction, BulkRefusal } from './job/bulk.js'
export type { LogOptions } from './queue/operations/filter.js'
export type { AttemptEnd } from './job/job.js'
export type {
  AttemptInfo,
  AttemptOutcome,
  JobStep,
  Timeline,
  TimelineEntry,
  TimelinePeriod,
  TimelineTotals,
  WaitKind,
} from './job/timeline.js'
export type { JobGraph, GraphNode, GraphEdge, FoldedJobs } from './queue/graph.js'
export type { HistoryOptions } from './queue/operations/times.js'
export type { InTransaction } from './queue/transactions.js'

// Claims by hand
export type { ClaimedJob, FailOptions, Heartbeat, HeartbeatOptions } from './worker/claims/claimed-job.js'
export type { ClaimOptions } from './worker/claims/options.js'
export type { ClaimedJobOf } from './worker/claims/queue.js'

// Job definitions
export { defineJobs, job, typed, withSchemas } from './queue/define.js'
export type {
  JobDefinition,
  JobDefinitions,
  JobOptions,
  NameOf,
  DataOf,
  InputOf,
  ResultOf,
  NextOf,
  AfterOf,
  PhasesOf,
  Upgrade,
} from './queue/define.js'
export type { Jsonable } from './job/values/json.js'

// Workers and handlers
export { Worker } from './worker/worker.js'
export type { WorkerOptions } from './worker/options.js'
export type { WorkerEventOf, WorkerEventType } from './worker/worker-events.js'
export type { CloseOptions } from './worker/close.js'
export type { WorkerRunOptions } from './worker/bounded-run.js'
export type { RunReport } from './worker/run-tally.js'
export { shutdown } from './worker/shutdown.js'
export type { Handler, HandlerOf, HandlerOptions, Handlers, ContextOf } from './worker/handlers.js'
export type {
  JobContext,
  JobSignal,
  AbortReason,
  Middleware,
  SignalOptions,
  PrepareOptions,
  Mode,
  Mode as CompleteMode,
} from './worker/attempt/context.js'
export { JobAbort, middleware } from './worker/attempt/context.js'
export type { WaitOptions } from './worker/attempt/children.js'
export type {
  BatchContext,
  BatchHandler,
  BatchHandlerOptions,
  BatchOptions,
  BatchedContext,
} from './worker/batches/handler.js'

// Phases
export { phases } from './worker/phases/handler.js'
export type { PhaseContext, PhaseOptions, Phases } from './worker/phases/handler.js'
export type { JobPhase, JobPhases } from './job/phases.js'
export type { PhaseStatus } from './job/memo.js'

// Flows and chains
export { FlowProducer } from './queue/flows/flow.js'
export type { FlowProducerOptions, Flow, FlowJob, FlowJobOptions } from './queue/flows/flow.js'
export type { FailurePolicy, EdgeError } from './job/job.js'
export type { Chain, CurrentJob } from './queue/flows/chain.js'
export type { ChainResult, DependencyPage, Ended, Ended as DependencyOutcome } from './queue/flows/chain-types.js'
export type {
  Planned,
  Planned as PendingJob,
  Planning,
  Completing,
  Completing as CompletionContext,
} from './queue/flows/follow-ups.js'

// Retries, schedules, limits and retention
export type { BackoffOptions, CustomBackoff } from './job/retry.js'
export type { Duration } from './job/values/duration.js'
export type { KeyedSchedule, SyncOptions, SyncedSchedules } from './queue/settings/schedule-sets.js'
export type { ScheduleHandle, TriggerOptions, Backfill, BackfillOptions } from './queue/settings/schedule-handle.js'
export type { ScheduleRun } from './queue/settings/schedule-runs.js'
export type {
  Schedule,
  ScheduleOptions,
  SchedulePage,
  SchedulePageOptions,
  RunOptions,
} from './queue/settings/schedules.js'
export type {
  ScheduleTimes,
  Timing,
  TimingOptions,
  CronOptions,
  EveryOptions,
  CatchUp,
  Overlap,
} from './job/schedules/schedule-times.js'
export type {
  Limits,
  LimitOptions,
  BoundOptions,
  GroupOptions,
  OneGroupOptions,
  RateOptions,
  StandingBound,
  StandingBound as LimitState,
} from './queue/settings/limits.js'
export type { Hold, HoldTarget, QueueHoldOptions } from './queue/settings/holds.js'
export type { HoldOptions } from './worker/attempt/hold.js'
export type { RetentionOptions, RetentionRule } from './queue/settings/retention.js'

// Seeing what happens
export type { QueueEvent, EventBase, EventOf, EventType, Listener, Logger } from './queue/events/events.js'
export type { Stop, Stop as Unsubscribe } from './store/runtime.js'
export type { Explanation, Reason, Reason as HoldReason } from './queue/explain.js'
export { storeCounts } from './queue/counts.js'
export type { CountOptions, QueueCounts, StateCounts } from './queue/counts.js'
export type { QueueHealth, NameHealth, LimitUse, LastMinute, WorkerInfo } from './queue/health/health.js'
export type { Paused, Ping } from './queue/health/queue-health.js'
export type { Lifetime as Totals } from './store/tally.js'
export type { Series, SeriesRow, SeriesOptions, SeriesKeepOptions } from './queue/health/series.js'
export type { SeriesMark } from './store/series/series-cells.js'
export { SERIES_BUCKETS } from './job/series.js'
export type { SeriesCounts, SeriesHistogram, SeriesStep } from './job/series.js'
export { eventStreamHeaders } from './queue/events/sse.js'
export type { EventStream } from './queue/events/sse.js'
export type { EventStreamOptions, StreamEnd, StreamEventType, StreamSnapshot } from './queue/events/stream-options.js'
export type { Telemetry } from './queue/instrumentation.js'

// Webhooks of jobs: options and events. `millrace/webhooks` delivers them.
export type { Webhooks, JobWebhook } from './queue/settings/webhook.js'
export type { JobWebhookOptions } from './queue/add-options.js'
export type { Delivered, Delivered as WebhookDelivery } from './queue/events/events.js'
export type { DeliveryEntry } from './job/memo.js'

// Errors
export { MillraceError, UnrecoverableError, isMillraceError } from './job/errors/errors.js'
export type { ErrorCode } from './job/errors/errors.js'
export { errorCatalogue } from './job/errors/catalogue.js'
export type { ErrorEntry } from './job/errors/catalogue.js'

// Stores
export type { Store, DisposableStore } from './store/store.js'
export type { SqlRow, SqlTransaction } from './store/sql-transaction.js'
export type { Runtime } from './store/runtime.js'

// Older places of names, which stay importable.
export { /** @deprecated Import it from `millrace/webhooks`. */ webhooks } from './features/webhooks/webhooks.js'
export type {
  /** @deprecated Import it from `millrace/webhooks`. */ WebhookOptions,
  /** @deprecated Import it from `millrace/webhooks`. */ BreakerOptions,
} from './features/webhooks/webhooks.js'
export type {
  /** @deprecated Import it from `millrace/webhooks`. */ Address,
  /** @deprecated Import it from `millrace/webhooks`. */ Lookup,
} from './features/webhooks/post.js'
export { /** @deprecated Import it from `millrace/webhooks`. */ verifyWebhook } from './features/webhooks/sign.js'
export type {
  /** @deprecated Import it from `millrace/webhooks`. */ ReceivedHeaders,
  /** @deprecated Import it from `millrace/webhooks`. */ VerifyOptions,
  /** @deprecated Import it from `millrace/webhooks`. */ WebhookMessage,
} from './features/webhooks/sign.js'
export { /** @deprecated Import it from `millrace/telemetry`. */ telemetry } from './features/telemetry.js'
export type {
  /** @deprecated Import it from `millrace/telemetry`. */ TelemetryOptions,
  /** @deprecated Import it from `millrace/telemetry`. */ MeterLike,
  /** @deprecated Import it from `millrace/telemetry`. */ TracerLike,
} from './features/telemetry.js'
export { /** @deprecated Import it from `millrace/telemetry`. */ prometheus } from './features/prometheus.js'
export type {
  /** @deprecated Import it from `millrace/telemetry`. */ PrometheusEndpoint,
  /** @deprecated Import it from `millrace/telemetry`. */ PrometheusOptions,
} from './features/prometheus.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ CancelArgument,
  /** @deprecated Import it from `millrace/types`. */ CascadeArgument,
} from './queue/operations/cascade.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ TransactionArgument,
  /** @deprecated Import it from `millrace/types`. */ TransactionWork,
  /** @deprecated Import it from `millrace/types`. */ WithTransaction,
} from './queue/transactions.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ AddArguments,
  /** @deprecated Import it from `millrace/types`. */ Declaring,
  /** @deprecated Import it from `millrace/types`. */ AnyJobs,
} from './queue/queue-types.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ PlanArguments,
  /** @deprecated Import it from `millrace/types`. */ Inside,
} from './queue/flows/follow-ups.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ Exactly,
  /** @deprecated Import it from `millrace/types`. */ FreePhases,
  /** @deprecated Import it from `millrace/types`. */ AnyPhases,
  /** @deprecated Import it from `millrace/types`. */ PhaseMethods,
  /** @deprecated Import it from `millrace/types`. */ PhaseRunner,
} from './worker/phases/handler.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ Handling,
  /** @deprecated Import it from `millrace/types`. */ HandledJob,
  /** @deprecated Import it from `millrace/types`. */ BatchHandlerOf,
  /** @deprecated Import it from `millrace/types`. */ PhasesHandlerOf,
} from './worker/handlers.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ GivenBy,
  /** @deprecated Import it from `millrace/types`. */ TakenBy,
} from './store/store.js'
export type { /** @deprecated Import it from `millrace/types`. */ PageWish } from './queue/operations/filter.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ Origin,
  /** @deprecated Import it from `millrace/types`. */ Processes,
} from './store/processes.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ SchemasFor,
  /** @deprecated Import it from `millrace/types`. */ WithSchemas,
  /** @deprecated Import it from `millrace/types`. */ OwnResultOf,
  /** @deprecated Import it from `millrace/types`. */ ReturnOf,
  /** @deprecated Import it from `millrace/types`. */ HandlerReturnOf,
} from './queue/define.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ ContinuationOf,
  /** @deprecated Import it from `millrace/types`. */ EndedOf,
  /** @deprecated Import it from `millrace/types`. */ DependenciesOf,
} from './queue/flows/chain-types.js'
export type { /** @deprecated Import it from `millrace/types`. */ ExtrasOf } from './worker/attempt/context.js'
export type {
  /** @deprecated Import it from `millrace/types`. */ FlowJobs,
  /** @deprecated Import it from `millrace/types`. */ FlowQueue,
} from './queue/flows/flow.js'
export type { /** @deprecated Import it from `millrace/types`. */ StandingGroupBound } from './queue/settings/limits.js'
export type { /** @deprecated Import it from `millrace/types`. */ Closable } from './worker/shutdown.js'
