// A model that checks every applied change against the table of transitions and the invariants.

import type { Change } from '../../src/job/change.js'
import { isFinished } from '../../src/job/job.js'
import type { JobRecord, Time } from '../../src/job/job.js'
import * as lifecycle from '../../src/job/lifecycle.js'
import type { Decision, Outcome } from '../../src/job/lifecycle.js'
import { Model } from './lifecycle.model.js'
import type { Place, Step } from './lifecycle.model.js'

type Event =
  | 'added'
  | Outcome['kind']
  | 'due'
  | 'cancelled'
  | 'retried'
  | 'promoted'
  | 'updated'
  | 'removed'
  | 'noted'
  | 'released'

const unfinished: ReadonlySet<Place> = new Set(['waiting', 'delayed', 'waiting-children', 'active'])
const gone = ['nowhere'] as const

/**
 * The table of transitions: what happened → from → to. Claims aside, which only take waiting jobs. A job that is not to
 * be kept goes from its end to nowhere in the same group; stale and edited jobs go from a state to the same.
 */
export const table: Record<Event, Partial<Record<Place, readonly Place[]>>> = {
  added: { nowhere: ['waiting', 'delayed', 'waiting-children'] },
  returned: { active: ['completed'], completed: gone },
  threw: { active: ['delayed', 'waiting', 'failed'], failed: gone },
  snoozed: { active: ['delayed', 'waiting'] },
  held: { active: ['waiting'] },
  waits: { active: ['waiting-children', 'waiting'] },
  interrupted: { active: ['waiting'] },
  due: {
    delayed: ['waiting'],
    active: ['waiting', 'failed'],
    'waiting-children': ['failed', 'cancelled', 'nowhere', 'waiting-children', 'waiting', 'delayed'],
    completed: ['completed', 'nowhere'],
    failed: ['failed', 'nowhere'],
    cancelled: ['cancelled', 'nowhere'],
  },
  cancelled: {
    waiting: ['cancelled'],
    delayed: ['cancelled'],
    'waiting-children': ['cancelled'],
    active: ['cancelled'],
    cancelled: gone,
  },
  retried: { failed: ['waiting', 'waiting-children'], cancelled: ['waiting', 'waiting-children'] },
  promoted: { delayed: ['waiting'] },
  updated: {
    waiting: ['waiting', 'delayed'],
    delayed: ['delayed', 'waiting'],
    'waiting-children': ['waiting-children'],
    failed: ['failed'],
    cancelled: ['cancelled'],
  },
  removed: {
    waiting: gone,
    delayed: gone,
    'waiting-children': gone,
    active: gone,
    completed: gone,
    failed: gone,
    cancelled: gone,
  },
  noted: {},
  released: {
    'waiting-children': ['waiting', 'delayed', 'waiting-children'],
    failed: ['failed'],
    cancelled: ['cancelled'],
  },
}

/** Checks a duty. */
export function must(holds: boolean, duty: string, facts: unknown): asserts holds {
  if (!holds) throw new Error(`${duty}: ${JSON.stringify(facts)}`)
}

/** What is acted on: a version of a job, or one that does not stand yet. */
type Acted = Pick<JobRecord, 'id' | 'chainId'> & { readonly fence?: number }

/** A model that checks every applied change against the table of transitions and the invariants. */
export class World extends Model {
  /** Every version of every job, as those who acted on it may have seen it. */
  readonly seen = new Map<string, JobRecord[]>()
  /** Every lease, as its worker was given it. */
  readonly leases: JobRecord[] = []
  readonly visited = new Set<string>()
  #minted = 0

  mint(): string {
    return `made-${this.#minted++}`
  }

  /** Applies something to a job, as it was read; returns whether it was applied. */
  happen(event: Event, job: Acted, decision: Decision): boolean {
    if (lifecycle.isDenied(decision) || decision.length === 0) return false
    const current = this.jobs.get(job.id)
    const held = decision.some((change) => 'held' in change && change.held)
    const mayLand =
      event === 'added' ||
      (current !== undefined &&
        current.fence === job.fence &&
        !(event === 'retried' && this.isBlocked(job.id)) &&
        (!held || (current.state === 'active' && current.leaseUntil! > this.now)))
    const steps = this.apply(decision)
    must((steps !== undefined) === mayLand, 'a group lands if its fence and its lease hold, and not otherwise', {
      event,
      job,
    })
    if (steps === undefined) return false
    for (const step of steps) this.#judge(event, step)
    judgeReleases(job, decision, steps)
    this.look()
    return true
  }

  #judge(event: Event, step: Step): void {
    const what = step.by === 'insert' ? 'added' : step.by === 'release' ? 'released' : event
    const { from, to, fences } = step
    must(table[what][from]?.includes(to) ?? false, 'a step is in the table', { what, step })
    must(from === to || !isFinishedPlace(from) || what === 'retried' || to === 'nowhere', 'an end is an end', {
      what,
      step,
    })
    if (step.by === 'release')
      must(fences[1] >= fences[0] && (from === to || fences[1] > fences[0]), 'fences go up', step)
    else must(fences[1] === fences[0] + 1, 'a move takes the fence up by one', step)
    this.visited.add(`${what}: ${from} → ${to}`)
  }

  /** Checks what holds of every job at every moment. */
  look(): void {
    for (const job of this.jobs.values()) {
      const versions = this.seen.get(job.id)
      if (versions?.at(-1) === job) continue
      if (versions === undefined) this.seen.set(job.id, [job])
      else versions.push(job)
      if (job.state === 'active') this.leases.push(job)
      this.#judgeTime(job)
      must(job.attempt >= 0 && job.attempt <= job.attempts, 'attempts are within their bounds', job)
      must(job.state !== 'waiting' || job.attempt < job.attempts, 'who waits has an attempt left', job)
      must(job.dueAt === lifecycle.dueAt(job), 'dueAt follows from the other times', job)
      must(
        job.pending > 0 === (job.state === 'waiting-children') || isFinished(job.state),
        'who waits for jobs has some',
        job,
      )
    }
  }

  /** Lets time pass. */
  pass(until: Time): void {
    this.now = Math.max(this.now, until)
    for (const job of this.jobs.values()) this.#judgeTime(job)
  }

  #judgeTime(job: JobRecord): void {
    const isDue = job.dueAt !== undefined && job.dueAt <= this.now
    const changes = lifecycle.due(job, this.now, job.brokenAt === undefined ? [] : this.edgesOf(job.id))
    must(changes.length > 0 === isDue, 'time changes a job when it is due, and only then', job)
  }

  /** Does what time asks for; answers how many jobs it changed. */
  upkeep(): number {
    let changed = 0
    for (const id of [...this.jobs.keys()].toSorted()) {
      const job = this.jobs.get(id)
      if (job !== undefined && this.happen('due', job, lifecycle.due(job, this.now, this.edgesOf(id)))) changed++
    }
    return changed
  }

  waiting(): readonly JobRecord[] {
    return [...this.jobs.values()].filter((job) => job.state === 'waiting')
  }
}

function isFinishedPlace(place: Place): boolean {
  return place !== 'nowhere' && !unfinished.has(place)
}

/** Every end of a job carries exactly one release of its chain, unless a continuation goes on. */
function judgeReleases(job: Acted, group: readonly Change[], steps: readonly Step[]): void {
  const ends = steps.some(({ id, from, to }) => id === job.id && unfinished.has(from) && !unfinished.has(to))
  const goesOn = group.some((change) => change.kind === 'insert' && change.job.chainId === job.chainId)
  const releases = group.filter((change) => change.kind === 'release')
  must(releases.length === (ends && !goesOn ? 1 : 0), 'an end is published once, and nothing else is', { job, group })
  must(
    releases.every((change) => change.chain === job.chainId),
    'a job ends no chain but its own',
    { job, group },
  )
}
