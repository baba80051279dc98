// A store as small as the port's prose allows: it applies changes to a few records, and remembers every step they took.

import type { Change, Insert, Move, NewEdge, NewJob, Note, Release, When } from '../../src/job/change.js'
import { isFinished } from '../../src/job/job.js'
import type { Edge, FinishedState, JobRecord, JobState, Millis, Time } from '../../src/job/job.js'
import { claimed, dueAt, released } from '../../src/job/lifecycle.js'
import { NOW, record } from './lifecycle.records.js'

/** Where a job can come from and go to, being nowhere included. */
export type Place = JobState | 'nowhere'

/** One step of one job. A release moves others than the job whose group it came with. */
export interface Step {
  readonly id: string
  readonly by: 'insert' | 'move' | 'release'
  readonly from: Place
  readonly to: Place
  readonly fences: readonly [before: number, after: number]
}

type Draft = { -readonly [Key in keyof JobRecord]: JobRecord[Key] }

/** Thrown inside a group to leave it without a trace. */
class Refusal extends Error {}

/** The model of a store, on a clock that only tests move. */
export class Model {
  now: Time = NOW
  jobs = new Map<string, JobRecord>()
  edges: readonly Edge[] = []
  #steps: Step[] = []

  /** Applies a group whole and answers its steps; undefined where it was refused, and then nothing has changed. */
  apply(group: readonly Change[]): readonly Step[] | undefined {
    const { jobs, edges } = this
    this.jobs = new Map(jobs)
    this.#steps = []
    try {
      for (const change of group) this.#change(change)
      return this.#steps
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      this.jobs = jobs
      this.edges = edges
      return undefined
    }
  }

  /** Leases a waiting job. */
  claim(job: JobRecord, lease: Millis, ahead: boolean): JobRecord {
    const active = claimed(job, { worker: 'w1', lease, ahead, now: this.now })
    this.jobs.set(job.id, active)
    return active
  }

  /** Extends a lease that still runs; its handler has begun. */
  renew(job: JobRecord, lease: Millis): void {
    if (!this.#mayChange(job.id, job.fence, true)) return
    const { now } = this
    this.#write(job.id, (draft) => Object.assign(draft, { leaseUntil: now + lease, ahead: false }))
  }

  /** The dependencies of a job. */
  edgesOf(id: string): readonly Edge[] {
    return this.edges.filter((edge) => edge.dependent === id)
  }

  /** The time at which the next job is due; undefined when there is none. */
  nextDue(): Time | undefined {
    const times = [...this.jobs.values()].flatMap((job) => job.dueAt ?? [])
    return times.length === 0 ? undefined : Math.min(...times)
  }

  #change(change: Change): void {
    if (change.kind === 'insert') this.#insert(change)
    else if (change.kind === 'move') this.#move(change)
    else if (change.kind === 'note') this.#note(change)
    else if (change.kind === 'release') this.#release(change)
    else if (change.hold === undefined) throw new Error('no rule of a job writes a cell, but for a hold')
  }

  #leaseIsOver(id: string): boolean {
    const job = this.jobs.get(id)
    return job?.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil <= this.now
  }

  #mayChange(id: string, fence: number, held: boolean): boolean {
    const job = this.jobs.get(id)
    if (job === undefined || job.fence !== fence) return false
    return !held || (job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil > this.now)
  }

  #insert({ job, edges: wanted }: Insert): void {
    if (this.jobs.has(job.id)) throw new Refusal()
    const edges = wanted.map((edge) => this.#edge(job.id, edge))
    const pending = edges.filter((edge) => edge.state !== 'ended').length
    const runAt = job.run && momentOf(job.run, this.now)
    const state = edges.length === 0 ? job.state : pending > 0 ? 'waiting-children' : released(runAt, this.now)
    const broken = edges.some((edge) => edge.state === 'broken')
    this.edges = [...this.edges, ...edges]
    this.jobs.set(
      job.id,
      created(job, { state, pending, runAt, brokenAt: broken ? this.now : undefined, createdAt: this.now }),
    )
    this.#steps.push({ id: job.id, by: 'insert', from: 'nowhere', to: state, fences: [-1, 0] })
  }

  #edge(dependent: string, { on, policy }: NewEdge): Edge {
    const job = this.jobs.get(on)
    if (job === undefined) throw new Refusal()
    const { chainId: chain, name } = job
    const end = this.#endOf(chain)
    const state = end === undefined ? 'open' : end === 'completed' ? 'ended' : 'broken'
    return { dependent, chain, name, policy, state, result: undefined, error: undefined }
  }

  /** How a chain ended: as its last job did; undefined while it goes on. */
  #endOf(chain: string): FinishedState | undefined {
    const jobs = [...this.jobs.values()].filter((job) => job.chainId === chain)
    const state = jobs.toSorted((a, b) => a.chainIndex - b.chainIndex).at(-1)?.state ?? 'cancelled' // it was removed
    return isFinished(state) ? state : undefined
  }

  /** Whether a job that starts over depends on what stands ended badly, which it does not ignore. */
  isBlocked(id: string): boolean {
    return this.edgesOf(id).some(
      ({ chain, policy, state }) =>
        (state === 'broken' || state === 'closed') && !policy.startsWith('ignore') && this.#isBad(chain),
    )
  }

  #isBad(chain: string): boolean {
    return ![undefined, 'completed'].includes(this.#endOf(chain))
  }

  #reopen(job: Draft): void {
    for (const edge of this.edgesOf(job.id)) {
      if ((edge.state !== 'broken' && edge.state !== 'closed') || this.#isBad(edge.chain)) continue
      const state = this.#endOf(edge.chain) === undefined ? 'open' : 'ended'
      job.pending += (state === 'open' ? 1 : 0) - (edge.state === 'broken' ? 1 : 0)
      this.edges = this.edges.map((each) => (each === edge ? { ...edge, state } : each))
    }
    if (!this.edgesOf(job.id).some(({ state }) => state === 'broken')) job.brokenAt = undefined
  }

  #move({ id, fence, to, held, reaps, set, closesBroken, waitsFor = [], reopens }: Move): void {
    if (!this.#mayChange(id, fence, held)) throw new Refusal()
    if (reaps === true && !this.#leaseIsOver(id)) throw new Refusal()
    if (reopens === true && this.isBlocked(id)) throw new Refusal()
    if (to === 'removed') {
      this.edges = this.edges.filter((edge) => edge.dependent !== id)
      this.#step('move', this.jobs.get(id)!, undefined)
      this.jobs.delete(id)
      return
    }
    this.#write(id, (job) => {
      const { state: from } = job
      job.fence++
      if (closesBroken) {
        job.pending -= this.edgesOf(id).filter((edge) => edge.state === 'broken').length
        job.brokenAt = undefined
        this.edges = this.edges.map((edge) =>
          edge.dependent === id && edge.state === 'broken' ? { ...edge, state: 'closed' } : edge,
        )
      }
      if (reopens === true) this.#reopen(job)
      for (const edge of waitsFor.map((each) => this.#edge(id, each))) {
        if (this.edgesOf(id).some(({ chain }) => chain === edge.chain)) continue
        this.edges = [...this.edges, edge]
        if (edge.state !== 'ended') job.pending++
        if (edge.state === 'broken') job.brokenAt = this.now
      }
      if (set.run !== undefined) job.runAt = set.run === null ? undefined : momentOf(set.run, this.now)
      // Counts as ended: the last dependency that was decided upon lets the job go on, as one that ended well would.
      job.state = to === 'waiting-children' && job.pending === 0 ? released(job.runAt, this.now) : to
      if (job.state === 'waiting') job.runAt = undefined // as stores do: its time has come, or was done without
      if (job.state !== 'active') Object.assign(job, { leaseUntil: undefined, ahead: false })
      if (job.state !== from && isFinished(from)) {
        Object.assign(job, { finishedAt: undefined, staleAt: undefined, stale: false, deleteAt: undefined })
      }
      if (job.state !== from && isFinished(job.state)) job.finishedAt = this.now
      job.attempt = set.attempt ?? job.attempt
      job.stalls = set.stalls ?? job.stalls
      job.priority = set.priority ?? job.priority
      job.result = set.result ?? job.result
      job.stale = set.stale ?? job.stale
      if (set.data !== undefined) job.data = set.data ?? undefined
      if (set.error !== undefined) job.error = set.error ?? undefined
      if (set.staleIn !== undefined) job.staleAt = this.now + set.staleIn
      if (set.deleteIn !== undefined) job.deleteAt = this.now + set.deleteIn
    })
  }

  #note({ id, fence, held, progress, data }: Note): void {
    if (!this.#mayChange(id, fence, held)) throw new Refusal()
    const job = this.jobs.get(id)!
    this.jobs.set(id, { ...job, progress: progress ?? job.progress, data: data ?? job.data })
  }

  #release({ chain, outcome }: Release): void {
    const well = outcome === 'completed'
    const state = well ? 'ended' : 'broken'
    const affected = this.edges.filter(
      (edge) => edge.chain === chain && (edge.state === 'open' || (well && edge.state !== 'ended')),
    )
    this.edges = this.edges.map((edge) => (affected.includes(edge) ? { ...edge, state } : edge))
    for (const { dependent, state: was } of affected) {
      if (was === 'closed') continue
      this.#write(
        dependent,
        (job) => {
          const waits = job.state === 'waiting-children'
          if (state === 'broken') job.brokenAt = this.now
          else job.pending--
          const broken = this.edgesOf(dependent).some((edge) => edge.state === 'broken')
          if (was === 'broken' && !broken) job.brokenAt = undefined
          if (waits && (state === 'broken' || was === 'broken' || job.pending === 0)) job.fence++
          if (waits && job.pending === 0) job.state = released(job.runAt, this.now)
          if (job.state === 'waiting') job.runAt = undefined
        },
        'release',
      )
    }
  }

  #write(id: string, work: (draft: Draft) => void, by: Step['by'] = 'move'): void {
    const before = this.jobs.get(id)!
    const draft: Draft = { ...before }
    work(draft)
    draft.dueAt = dueAt(draft)
    this.jobs.set(id, draft)
    this.#step(by, before, draft)
  }

  #step(by: Step['by'], before: JobRecord, after: JobRecord | undefined): void {
    const fences = [before.fence, after?.fence ?? before.fence + 1] as const
    this.#steps.push({ id: before.id, by, from: before.state, to: after?.state ?? 'nowhere', fences })
  }
}

function momentOf(when: When, now: Time): Time {
  return 'at' in when ? when.at : now + when.in
}

function created(job: NewJob, over: Partial<JobRecord>): JobRecord {
  const { run: _run, lifo: _lifo, ...rest } = job
  return record({ ...rest, fence: 0, ord: 0, ...over })
}
