// testing/script/script.ts: everything that happens in a simulation, as plain data that can be stored, shrunk and run again.
import type { BulkAction } from '../../job/bulk.js'
import type { FailurePolicy, JobState, Millis } from '../../job/job.js'
import type { CatchUp, Overlap } from '../../job/schedules/schedule-times.js'
import type { LimitOptions } from '../../queue/settings/limits.js'

/** The kinds of faults of a commit. */
export const commitFaults = [
  'late',
  'slow',
  'lost-before',
  'lost-after',
  'cut-off',
  'duplicated',
  'straggler',
  'busy',
] as const
/** The kinds of faults of a read. */
export const readFaults = ['late', 'lost'] as const
/** The kinds of faults of a hint. */
export const hintFaults = ['late', 'dropped', 'doubled'] as const

/** A fault of one call of one process: the `nth` of its kind. */
export type Fault =
  /**
   * - `late`: applied late. `slow`: applied at once, the receipt comes late.
   * - `lost-before`: rejected, not applied. `lost-after`: applied, then rejected.
   * - `cut-off`: applied, then rejected, and the store is unreachable for `delay` from then on.
   * - `duplicated`: applied, and sent again later. `straggler`: rejected at once, applied later.
   * - `busy`: one group is withheld and refused as busy.
   */
  | {
      readonly on: 'commit'
      readonly kind: (typeof commitFaults)[number]
      readonly process: string
      readonly nth: number
      readonly delay: Millis
    }
  | {
      readonly on: 'read'
      readonly kind: (typeof readFaults)[number]
      readonly process: string
      readonly nth: number
      readonly delay: Millis
    }
  | {
      readonly on: 'hint'
      readonly kind: (typeof hintFaults)[number]
      readonly process: string
      readonly nth: number
      readonly delay: Millis
    }

/** One thing that a handler does. */
export type Act =
  | { readonly act: 'sleep'; readonly for: Millis; readonly polite: boolean }
  | { readonly act: 'block'; readonly for: Millis }
  | { readonly act: 'log' | 'progress' | 'throw' | 'fatal' | 'hang' }
  | { readonly act: 'snooze'; readonly for: Millis }
  /** Ends the run and holds the jobs of its name, its group or its queue; skipped in batches. */
  | { readonly act: 'hold'; readonly for: Millis; readonly of: 'name' | 'group' | 'queue' }
  /** A durable step, one of a few names. In batches it is skipped, and so are the two acts below. */
  | { readonly act: 'step'; readonly name: string }
  /** A durable sleep. */
  | { readonly act: 'nap'; readonly name: string; readonly for: Millis }
  /** Waits for the job's signal, with this timeout. */
  | { readonly act: 'await'; readonly for: Millis }
  /** Adds children and waits for them. The last act of its run, and never in the last run; skipped in batches. */
  | {
      readonly act: 'children'
      readonly jobs: readonly ChildPlan[]
      readonly onFailure: FailurePolicy
      readonly cancelSiblings: boolean
    }
  /** Continues the chain with another job. The last act of its run; skipped in batches. */
  | { readonly act: 'continue'; readonly job: ChildPlan }

/** A job that a handler adds, to its own queue. */
export interface ChildPlan {
  /** The name it is added under. */
  readonly name: string
  /** What its handler does, run by run. */
  readonly runs: readonly (readonly Act[])[]
  /** As in `add`, like the options below. */
  readonly attempts: number
  /** A fixed backoff. */
  readonly backoff: Millis
  /** Default: none. */
  readonly delay?: Millis
  /** Default: kept. */
  readonly removeOnComplete?: Millis
  /** Derives a child's id from its parent's, so that another run adds the same job. Default: a generated id. */
  readonly ownId?: true
}

/** A job to add, and what its handler does in each run; later runs repeat the acts of the last one. */
export interface JobPlan {
  /** Its number, by which other steps refer to it. */
  readonly n: number
  /** The queue it is added to. */
  readonly queue: string
  /** The name it is added under. */
  readonly name: string
  /** What its handler does, run by run. */
  readonly runs: readonly (readonly Act[])[]
  /** Derives its id from `n`. Default: a generated id. */
  readonly ownId?: true
  /** As in `add`, like the options below. Default: as in `add`. */
  readonly priority?: number
  /** Default: none. */
  readonly delay?: Millis
  /** Default: never. */
  readonly expires?: Millis
  /** Default 3. */
  readonly attempts?: number
  /** A fixed backoff. Default: as in `add`. */
  readonly backoff?: Millis
  /** Default: first in, first out. */
  readonly lifo?: true
  /** Default: none. */
  readonly group?: string
  /** Default: no timeout. */
  readonly timeout?: Millis
  /** Default: kept. */
  readonly removeOnComplete?: Millis
  /** Default: kept. */
  readonly removeOnFail?: Millis
  /** Default: none. */
  readonly dedup?: { readonly key: string; readonly mode: 'keep' | 'replace' | 'reject'; readonly window?: Millis }
  /** Other plans, by their `n`. Default: none. */
  readonly after?: readonly { readonly job: number; readonly onFailure: FailurePolicy }[]
}

/** A tree of jobs to add together. */
export interface FlowPlan {
  /** The job. */
  readonly job: JobPlan
  /** What its failure means for its parent. Default: as in flows. */
  readonly onFailure?: FailurePolicy
  /** When one child fails, the others are cancelled before the job ends. Default: they are not. */
  readonly cancelSiblings?: true
  /** The jobs it waits for. */
  readonly children: readonly FlowPlan[]
}

/** The jobs of a flow, children before their parents. */
export function jobsOfFlow({ job, children }: FlowPlan): readonly JobPlan[] {
  return [...children.flatMap(jobsOfFlow), job]
}

/** A schedule, and what the handlers of its runs do. */
export interface SchedulePlan {
  /** Its key. */
  readonly key: string
  /** The queue it is in. */
  readonly queue: string
  /** The name of its runs. */
  readonly name: string
  /** What the handler of each run does. */
  readonly runs: readonly (readonly Act[])[]
  /** As in `queue.schedule`, like the options below. */
  readonly every: Millis
  /** How many runs it makes, so that it ends. */
  readonly limit: number
  /** What to do about times that were missed. */
  readonly catchUp: CatchUp
  /** What to do about a run whose predecessor has not finished. */
  readonly overlap: Overlap
}

/** A bulk operation. */
export interface OperationPlan {
  /** Its number, by which other steps refer to it. */
  readonly o: number
  /** The queue whose jobs it changes. */
  readonly queue: string
  /** What it does with them; an update sets their priority. */
  readonly action: BulkAction
  /** Which jobs; `{}` for all. */
  readonly where: { readonly name?: string; readonly state?: JobState }
  /** As in `queue.operate`. Default: none. */
  readonly rate?: { readonly max: number; readonly per: Millis }
  /** The caller waits for its end. Default: it does not. */
  readonly wait?: true
}

/** Something that happens to a process. */
export type ProcessStep =
  | { readonly at: Millis; readonly do: 'spawn'; readonly process: string; readonly skew: Millis }
  | { readonly at: Millis; readonly do: 'freeze'; readonly process: string; readonly for: Millis }
  /** Its worker is paused for a while. */
  | { readonly at: Millis; readonly do: 'rest'; readonly process: string; readonly for: Millis }
  | { readonly at: Millis; readonly do: 'kill'; readonly process: string }
  | { readonly at: Millis; readonly do: 'close'; readonly process: string; readonly timeout: Millis }
  /** The store is unreachable from this process; undefined: from all processes. */
  | { readonly at: Millis; readonly do: 'outage'; readonly process: string | undefined; readonly for: Millis }

/** Something that a process does to the queues. */
export type Operation =
  | {
      readonly at: Millis
      readonly do: 'add'
      readonly process: string
      readonly job: JobPlan
      readonly wait: Millis | undefined
    }
  | { readonly at: Millis; readonly do: 'addBulk'; readonly process: string; readonly jobs: readonly JobPlan[] }
  | { readonly at: Millis; readonly do: 'flow'; readonly process: string; readonly flow: FlowPlan }
  | {
      readonly at: Millis
      readonly do: 'cancel' | 'retry' | 'promote' | 'remove'
      readonly process: string
      readonly job: number
    }
  | { readonly at: Millis; readonly do: 'signal'; readonly process: string; readonly job: number }
  | {
      readonly at: Millis
      readonly do: 'update'
      readonly process: string
      readonly job: number
      readonly priority?: number
      readonly delay?: Millis
    }
  | {
      readonly at: Millis
      readonly do: 'pause' | 'resume'
      readonly process: string
      readonly queue: string
      readonly name: string | undefined
    }
  | {
      readonly at: Millis
      readonly do: 'limit'
      readonly process: string
      readonly queue: string
      readonly limits: LimitOptions
    }
  | {
      readonly at: Millis
      readonly do: 'unschedule' | 'trigger' | 'pauseSchedule' | 'resumeSchedule'
      readonly process: string
      readonly queue: string
      readonly key: string
    }
  | { readonly at: Millis; readonly do: 'schedule'; readonly process: string; readonly plan: SchedulePlan }
  /** Runs a schedule for its times of this long before now. */
  | {
      readonly at: Millis
      readonly do: 'backfill'
      readonly process: string
      readonly queue: string
      readonly key: string
      readonly back: Millis
      readonly overlap: 'queue' | 'allow' | undefined
    }
  /** Holds a name, a group or the whole queue; `for` undefined: removes that hold. */
  | {
      readonly at: Millis
      readonly do: 'hold'
      readonly process: string
      readonly queue: string
      readonly of: { readonly name?: string; readonly group?: string }
      readonly for: Millis | undefined
    }
  | { readonly at: Millis; readonly do: 'operate'; readonly process: string; readonly plan: OperationPlan }
  | {
      readonly at: Millis
      readonly do: 'pauseOperation' | 'resumeOperation' | 'cancelOperation'
      readonly process: string
      readonly operation: number
    }
  | {
      readonly at: Millis
      readonly do: 'cancelAll' | 'retryAll' | 'retryFailed' | 'promoteAll'
      readonly process: string
      readonly queue: string
    }

/** One step of a script. */
export type Step = ProcessStep | Operation

/** Settings of all workers of a simulation. */
export interface SimulationSettings {
  /** The queues that every worker claims from. */
  readonly queues: readonly string[]
  /** The workers' lease. */
  readonly lease: Millis
  /** Jobs at a time in each worker. */
  readonly concurrency: number
  /** Jobs at a time in each queue, over all workers; undefined: no limit. */
  readonly limit: number | undefined
  /** How often workers poll without a hint. */
  readonly pollEvery: Millis
  /** How long after its timeout a handler is abandoned. */
  readonly abandonAfter: Millis
  /** How long finished jobs are kept. */
  readonly retention: { readonly staleAfter: Millis; readonly deleteAfter: Millis } | undefined
  /** The batch options of jobs named `odd`: the largest size, and how long to wait for more; undefined: no batches. */
  readonly batch?: { readonly size: number; readonly wait: Millis } | undefined
  /** The longest that a call without a fault takes in each direction. */
  readonly latency: Millis
}

/** A simulation as data. */
export interface Script {
  /** The seed it was generated from, which also seeds the random numbers of its processes. */
  readonly seed: number
  /** The settings of all workers. */
  readonly settings: SimulationSettings
  /** What happens, in the order of `at`. */
  readonly steps: readonly Step[]
  /** The faults to inject. */
  readonly faults: readonly Fault[]
}
