// testing/check/violation.ts: the rules that a history must obey, and the reports of broken ones.
import type { Millis } from '../../job/job.js'

/** The rules, by name. */
export const rules = {
  fence: 'a change is applied only with the current fence of its job',
  settlement: 'a lease is settled at most once, by its holder, before it expires',
  lease: 'a job is reaped only after its lease has expired, and a handler starts only while the lease is valid',
  upkeep: 'a worker never reaps a job that it is running itself',
  claim: 'a claim returns waiting jobs of the requested names, with attempts left and a fence higher than any before',
  received:
    'a claim whose receipt was lost costs no attempt, if its worker lives and reaches the store before the job is reaped',
  expiry: 'a job that has expired is never started',
  pause: 'paused jobs are not claimed',
  hold: 'jobs that are held are not claimed, and a process whose handler holds jobs starts none of those that it has leased',
  handler: 'no process runs a job twice at the same time, or more jobs than it has slots',
  limit: 'there are never more leases than the limit allows',
  rate: 'no more jobs are claimed in a period than the rate allows',
  parent: 'a job is released once, in the commit that ended its last dependency',
  results: 'a job that has waited reads the outcome of each of its dependencies, and of no other job',
  siblings: 'a job that fails after all its children fails only when each of them has ended',
  chain: 'a chain continues with one job, of the same parent, in the commit that completed the job before it',
  step: 'a stored step does not run again, and returns its stored result',
  signal: 'a signal is accepted once, and every read returns the same data',
  dedup: 'no two unfinished jobs have the same key, and no job is added while a window lasts',
  schedule: 'no time of a schedule is skipped or doubled: its run is added in the commit that advances the schedule',
  operation:
    'a bulk operation visits each job that matches, changes it once, counts what it changes, and keeps to its rate',
  replay: 'a batch is applied once, and a replay returns the same receipt',
  state: 'the state of a job follows from the applied changes',
  event: 'each transition is published once, and nothing else is',
  acknowledged: 'what a call returns is true',
  lost: 'every job ends',
  late: 'a job that a worker could claim does not wait longer than a poll takes',
  overdue: 'upkeep handles every due job',
  working: 'a live worker keeps claiming jobs',
  closing: 'workers and queues close in time',
  spinning: 'nothing loops without waiting',
  expected: 'the checks of the user hold: `expect` and `produce` do not throw',
  unhandled: 'no promise is rejected without a handler',
} as const

/** The name of a rule. */
export type Rule = keyof typeof rules

/** A rule that was broken. */
export interface Violation {
  /** The rule. */
  readonly rule: Rule
  /** When, in milliseconds since the simulation started. */
  readonly time: Millis
  /** The job it is about, if it is about one. */
  readonly id: string | undefined
  /** What happened instead. */
  readonly message: string
}

/** Reports a broken rule. */
export type Report = (rule: Rule, time: Millis, id: string | undefined, message: string) => void
