// testing/check/violation.ts: the rules that a history must obey, and the reports of broken ones.
import type { Millis } from '../../job/job.js'

/** The rules, by name. */
export const rules = {
  fence: 'a change lands only with the fence that the job has',
  settlement: 'a lease is settled at most once, by its holder, while it lasts',
  lease: 'a job is taken from its holder only when the lease is over, and a handler starts only while it lasts',
  upkeep: 'a worker never takes away a job that it is running itself',
  claim: 'a claim takes a waiting job, of a name asked for, within its attempts, with a fence higher than any before',
  received:
    'a claim whose answer was lost costs no attempt, if its worker lives and reaches the store before the job is reaped',
  pause: 'what is paused is not claimed',
  handler: 'no process runs a job twice at the same time, nor more jobs than it has slots',
  limit: 'no more leases run at a time than the limit allows',
  rate: 'no more jobs are claimed in a stretch of time than the rate allows',
  parent: 'a job is released in the very commit that ended its last dependency, not before, and once',
  results: 'a job that has waited is told what each of its dependencies came to, of all of them and of no other',
  siblings: 'a job that fails with all its children does so when each of them has ended',
  chain:
    'a chain goes on with one job, a child of the same parent, in the very commit that completed the one before it',
  step: 'a step that was remembered is not taken again, and gives what it gave',
  signal: 'a signal is taken once, and gives the same whenever it is asked for',
  dedup: 'no two unfinished jobs hold one key, and a window lets nobody in',
  schedule: 'no time of a schedule is skipped or doubled: its run is made in the very commit that moves it on',
  replay: 'a batch is applied once, and answered alike each time',
  state: 'a job is what the changes that landed have made of it',
  event: 'each transition is announced once, and nothing else is',
  acknowledged: 'what a caller was told is true',
  lost: 'every job comes to its end',
  late: 'a job that a worker could start does not wait for longer than the poll takes',
  overdue: 'what is due is done',
  working: 'a worker that lives goes on asking for jobs',
  closing: 'workers and queues close in time',
  spinning: 'nothing asks again and again without waiting',
  expected: 'what whoever simulates their own jobs expects of them',
  unhandled: 'no promise is rejected without somebody to hear of it',
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
