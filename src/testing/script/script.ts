// testing/script/script.ts: everything that a simulation will go through, as plain data: it can be kept, cut down and run again.
import type { FailurePolicy, Millis } from '../../job/job.js'
import type { CatchUp, Overlap } from '../../job/schedule-times.js'
import type { LimitOptions } from '../../queue/settings/limits.js'

/** What can go wrong with a write. */
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
/** What can go wrong with a read. */
export const readFaults = ['late', 'lost'] as const
/** What can go wrong with a hint. */
export const hintFaults = ['late', 'dropped', 'doubled'] as const

/** What goes wrong with one call of one process. */
export type Fault =
  /**
   * - `late`: applied late. `slow`: applied at once, answered late.
   * - `lost-before`: rejected, not applied. `lost-after`: applied, then rejected.
   * - `cut-off`: applied, then rejected, and the store is out of reach from then on.
   * - `duplicated`: arrives once more, later. `straggler`: rejected at once, arrives later.
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
  /** A durable step, one of a few names; left out in batches, and so are the two below. */
  | { readonly act: 'step'; readonly name: string }
  /** A durable sleep. */
  | { readonly act: 'nap'; readonly name: string; readonly for: Millis }
  /** Waits for the job's signal, for that long at most. */
  | { readonly act: 'await'; readonly for: Millis }
  /** Adds children and waits for them. The last act of its run, and never of the last run; left out in batches. */
  | {
      readonly act: 'children'
      readonly jobs: readonly ChildPlan[]
      readonly onFailure: FailurePolicy
      readonly cancelSiblings: boolean
    }
  /** Carries the chain on. The last act of its run; left out in batches. */
  | { readonly act: 'continue'; readonly job: ChildPlan }

/** A job that a handler adds, to its own queue. */
export interface ChildPlan {
  /** The name it is added under. */
  readonly name: string
  /** What its handler does, run by run. */
  readonly runs: readonly (readonly Act[])[]
  /** As in `add`, and so are those below. */
  readonly attempts: number
  /** A fixed one. */
  readonly backoff: Millis
  /** Default: none. */
  readonly delay?: Millis
  /** Default: kept. */
  readonly removeOnComplete?: Millis
  /** A child is given an id by its parent's, so that another run means the same one. Default: one made up. */
  readonly ownId?: true
}

/** A job to be added, and what its handler will do in each of its runs; the last run's acts are also those of any later. */
export interface JobPlan {
  /** By which other steps mean it. */
  readonly n: number
  /** The queue it is added to. */
  readonly queue: string
  /** The name it is added under. */
  readonly name: string
  /** What its handler does, run by run. */
  readonly runs: readonly (readonly Act[])[]
  /** Give it an id of its own instead of one made up. */
  readonly ownId?: true
  /** As in `add`, and so are those below. Default: as in `add`. */
  readonly priority?: number
  /** Default: none. */
  readonly delay?: Millis
  /** Default 3. */
  readonly attempts?: number
  /** A fixed one. Default: as in `add`. */
  readonly backoff?: Millis
  /** Default: first in, first out. */
  readonly lifo?: true
  /** Default: none. */
  readonly group?: string
  /** Default: no bound. */
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

/** A tree of jobs to be added together. */
export interface FlowPlan {
  /** The job. */
  readonly job: JobPlan
  /** What its failure means for its parent. Default: as in flows. */
  readonly onFailure?: FailurePolicy
  /** Its children are cancelled before the failure of one of them ends it. Default: they are not. */
  readonly cancelSiblings?: true
  /** Those it waits for. */
  readonly children: readonly FlowPlan[]
}

/** The jobs of a flow, children before their parents. */
export function jobsOfFlow({ job, children }: FlowPlan): readonly JobPlan[] {
  return [...children.flatMap(jobsOfFlow), job]
}

/** A schedule, and what the handlers of its runs will do. */
export interface SchedulePlan {
  /** Its key. */
  readonly key: string
  /** The queue it is in. */
  readonly queue: string
  /** The name of its runs. */
  readonly name: string
  /** What the handler of each run does. */
  readonly runs: readonly (readonly Act[])[]
  /** As in `queue.schedule`, and so are those below. */
  readonly every: Millis
  /** So that it comes to an end. */
  readonly limit: number
  /** What becomes of times that were missed. */
  readonly catchUp: CatchUp
  /** What becomes of a run whose predecessor has not finished. */
  readonly overlap: Overlap
}

/** Something that happens to a process. */
export type ProcessStep =
  | { readonly at: Millis; readonly do: 'spawn'; readonly process: string; readonly skew: Millis }
  | { readonly at: Millis; readonly do: 'freeze'; readonly process: string; readonly for: Millis }
  /** Its worker is paused for a while. */
  | { readonly at: Millis; readonly do: 'rest'; readonly process: string; readonly for: Millis }
  | { readonly at: Millis; readonly do: 'kill'; readonly process: string }
  | { readonly at: Millis; readonly do: 'close'; readonly process: string; readonly timeout: Millis }
  /** The store cannot be reached from this process, or from any. */
  | { readonly at: Millis; readonly do: 'outage'; readonly process: string | undefined; readonly for: Millis }

/** Something that a process asks for. */
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
      readonly do: 'unschedule'
      readonly process: string
      readonly queue: string
      readonly key: string
    }
  | { readonly at: Millis; readonly do: 'schedule'; readonly process: string; readonly plan: SchedulePlan }
  | {
      readonly at: Millis
      readonly do: 'cancelAll' | 'retryAll' | 'retryFailed' | 'promoteAll'
      readonly process: string
      readonly queue: string
    }

/** One step of a script. */
export type Step = ProcessStep | Operation

/** What all workers of a simulation are told. */
export interface SimulationSettings {
  /** The queues that every worker takes jobs from. */
  readonly queues: readonly string[]
  /** The workers' lease. */
  readonly lease: Millis
  /** Jobs at a time in each worker. */
  readonly concurrency: number
  /** Jobs at a time in each queue, over all workers; undefined: no bound. */
  readonly limit: number | undefined
  /** How often workers ask without being told. */
  readonly pollEvery: Millis
  /** How long after its timeout a handler is given up. */
  readonly abandonAfter: Millis
  /** How long finished jobs are kept. */
  readonly retention: { readonly staleAfter: Millis; readonly deleteAfter: Millis } | undefined
  /** Jobs named `odd` are run in batches of at most so many, gathered for so long; undefined: one by one. */
  readonly batch?: { readonly size: number; readonly wait: Millis } | undefined
  /** The most that a call takes each way when nothing is wrong. */
  readonly latency: Millis
}

/** A simulation as data. */
export interface Script {
  /** What it was made from; it also decides the chance within. */
  readonly seed: number
  /** What all workers are told. */
  readonly settings: SimulationSettings
  /** What happens, in the order of `at`. */
  readonly steps: readonly Step[]
  /** What goes wrong. */
  readonly faults: readonly Fault[]
}
