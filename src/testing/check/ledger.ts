// testing/check/ledger.ts: derives the state of each job from the applied changes alone, and compares it with the store.
import type { Insert, Move, NewEdge, Note } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { EdgePolicy, FinishedState, JobRecord, JobState, Millis, Time } from '../../job/job.js'
import { released } from '../../job/lifecycle.js'
import type { Verdict } from '../../store/store.js'
import type { Landing } from './simulated-history.js'
import type { Report } from './violation.js'

/** A job as the ledger knows it. */
export interface Tracked {
  readonly id: string
  readonly queue: string
  readonly name: string
  readonly chain: string
  readonly attempts: number
  readonly edges: {
    readonly chain: string
    readonly policy: EdgePolicy
    state: 'open' | 'ended' | 'broken' | 'closed'
  }[]
  state: JobState | 'removed'
  fence: number
  attempt: number
  runAt: Time | undefined
  leaseUntil: Time
  /** Its dependencies have released it, and it has not been retried since. */
  isReleased: boolean
}

/** Callbacks for the changes that the ledger applies. */
export interface LedgerListener {
  inserted?(job: Tracked, change: Insert, landing: Landing): void
  /** Called before the ledger applies the move. */
  moving?(job: Tracked, move: Move, landing: Landing): void
  /** A finished job is retried. */
  revived?(job: Tracked, landing: Landing): void
  noted?(job: Tracked, note: Note): void
  claimed?(job: Tracked, record: JobRecord, landing: Landing): void
  /** A chain has ended; `job` is the one that ended last. */
  chainEnded?(job: Tracked, outcome: FinishedState): void
}

/** Applies every landing to its own copy of the jobs. */
export class Ledger {
  readonly jobs = new Map<string, Tracked>()
  /** The events that should have been published of each job, in order. */
  readonly expected = new Map<string, string[]>()
  readonly #chains = new Map<string, Tracked[]>()
  readonly #dependents = new Map<string, Tracked[]>()
  readonly #report: Report
  readonly #listeners: readonly LedgerListener[]

  constructor(report: Report, listeners: readonly LedgerListener[]) {
    this.#report = report
    this.#listeners = listeners
  }

  /** Applies a landing. */
  land(landing: Landing): void {
    const { batch, receipt, after } = landing
    batch.groups.forEach((group, at) => {
      const verdict = receipt.groups[at]
      if (verdict?.ok === true) this.#group(landing, group, verdict)
    })
    batch.renewals.forEach(({ id, fence, lease }, at) => {
      const job = this.jobs.get(id)
      if (receipt.renewals[at]?.ok === true && lease > 0 && job?.fence === fence) job.leaseUntil = receipt.now + lease
    })
    for (const record of receipt.asks.flat()) this.#claim(landing, record)
    for (const [id, record] of after) this.#compare(landing, id, record)
  }

  /** Compares with the final state of the store: no job may have changed without a landing. */
  close(time: Millis, jobs: readonly JobRecord[]): void {
    const stored = new Map(jobs.map((job) => [job.id, job]))
    for (const { id, state, fence } of this.jobs.values()) {
      const record = stored.get(id)
      const found = record === undefined ? 'removed' : `${record.state}@${record.fence}`
      const known = state === 'removed' ? 'removed' : `${state}@${fence}`
      if (found !== known) this.#report('state', time, id, `At the end it is ${found}, but should be ${known}.`)
      stored.delete(id)
    }
    for (const id of stored.keys()) this.#report('state', time, id, 'It is in the store, but was never added.')
  }

  #expect(id: string, event: string): void {
    const events = this.expected.get(id)
    if (events === undefined) this.expected.set(id, [event])
    else events.push(event)
  }

  #group(landing: Landing, group: Landing['batch']['groups'][number], verdict: Verdict & { ok: true }): void {
    const ended: { readonly job: Tracked; readonly outcome: FinishedState }[] = []
    let inserted = 0
    for (const change of group) {
      if (change.kind === 'insert') this.#insert(landing, change, verdict.inserted[inserted++])
      else if (change.kind === 'note') this.#note(landing, change)
      else if (change.kind === 'move') {
        const job = this.jobs.get(change.id)
        if (job === undefined)
          this.#report('state', landing.time, change.id, 'A move was applied to a job that was never added.')
        else {
          const before = job.state
          this.#move(landing, job, change)
          const { state } = job
          if (before !== 'removed' && !isFinished(before) && (state === 'removed' || isFinished(state))) {
            ended.push({ job, outcome: state === 'removed' ? 'cancelled' : state })
          }
        }
      }
    }
    // Dependents are released in the same commit, whether the group has a `release` or not.
    for (const { job, outcome } of ended) this.#release(job, outcome, landing.receipt.now)
  }

  #insert(landing: Landing, change: Insert, record: JobRecord | undefined): void {
    const { id, queue, name, chainId, attempts } = change.job
    const { now } = landing.receipt
    const existing = this.jobs.get(id)
    if (existing !== undefined && existing.state !== 'removed') {
      this.#report('state', landing.time, id, 'It was added a second time while it existed.')
    }
    const chains = new Set<string>()
    const edges = change.edges.flatMap(({ on, policy }) => {
      const chain = this.jobs.get(on)?.chain ?? on
      if (chains.has(chain)) return []
      chains.add(chain)
      return [{ chain, policy, state: this.#edgeTo(chain) }]
    })
    const job: Tracked = {
      id,
      queue,
      name,
      chain: chainId,
      attempts,
      edges,
      state: record?.state ?? change.job.state,
      fence: record?.fence ?? 0,
      attempt: 0,
      runAt: record?.runAt,
      leaseUntil: 0,
      isReleased: false,
    }
    const expected =
      edges.length === 0 ? change.job.state : pending(job) > 0 ? 'waiting-children' : released(job.runAt, now)
    if (job.state !== expected) {
      this.#report(
        edges.length > 0 ? 'parent' : 'state',
        landing.time,
        id,
        `It was added as ${job.state}, but should be ${expected}.`,
      )
    }
    job.isReleased = edges.length > 0 && job.state !== 'waiting-children'
    this.jobs.set(id, job)
    append(this.#chains, chainId, job)
    for (const { chain } of edges) append(this.#dependents, chain, job)
    this.#expect(id, job.state)
    for (const each of this.#listeners) each.inserted?.(job, change, landing)
  }

  #edgeTo(chain: string): Tracked['edges'][number]['state'] {
    const members = this.#chains.get(chain) ?? []
    if (members.some(isUnfinished)) return 'open'
    return members.findLast(({ state }) => state !== 'removed')?.state === 'completed' ? 'ended' : 'broken'
  }

  #note({ time, process, receipt }: Landing, change: Note): void {
    const job = this.jobs.get(change.id)
    if (job === undefined) return
    if (job.fence !== change.fence) {
      this.#report(
        'fence',
        time,
        job.id,
        `${process} wrote a note for fence ${change.fence}, but the fence is ${job.fence}.`,
      )
    } else if (change.held && (job.state !== 'active' || job.leaseUntil <= receipt.now)) {
      this.#report('fence', time, job.id, `${process} wrote a note without the lease.`)
    }
    if (change.progress !== undefined) this.#expect(job.id, 'progress')
    for (const each of this.#listeners) each.noted?.(job, change)
  }

  #move(landing: Landing, job: Tracked, move: Move): void {
    const { now } = landing.receipt
    const { id } = job
    for (const each of this.#listeners) each.moving?.(job, move, landing)
    if (move.fence !== job.fence) {
      const by = `${landing.process} moved it to ${move.to}`
      this.#report('fence', landing.time, id, `${by} for fence ${move.fence}, but the fence is ${job.fence}.`)
    }
    const before = job.state
    job.fence = Math.max(job.fence, move.fence) + 1
    if (move.to === 'removed') {
      job.state = 'removed'
      this.#expect(id, 'removed')
      return
    }
    const { set } = move
    if (set.attempt !== undefined) job.attempt = set.attempt
    if (set.run !== undefined)
      job.runAt = set.run === null ? undefined : 'at' in set.run ? set.run.at : now + set.run.in
    if (move.closesBroken) for (const edge of job.edges) if (edge.state === 'broken') edge.state = 'closed'
    if (move.reopens) this.#reopen(landing.time, job)
    if (move.waitsFor !== undefined) this.#waitFor(job, move.waitsFor)
    const releasedAtOnce = move.to === 'waiting-children' && pending(job) === 0
    job.state = releasedAtOnce ? released(job.runAt, now) : move.to
    if (job.state === 'waiting' && before !== 'waiting') job.runAt = undefined
    if (before === 'waiting-children' && (job.state === 'waiting' || job.state === 'delayed'))
      this.#checkRelease(landing.time, job)
    if (before !== 'removed' && isFinished(before) && !isFinished(job.state)) {
      job.isReleased = job.state !== 'waiting-children'
      for (const each of this.#listeners) each.revived?.(job, landing)
    }
    if (move.why !== undefined) this.#expect(id, move.why)
    if (job.state !== before) this.#expect(id, job.state)
  }

  /** A retried job waits again for chains that are open again, and must not start if a dependency is still broken. */
  #reopen(time: Millis, job: Tracked): void {
    for (const edge of job.edges) {
      if (edge.state !== 'broken' && edge.state !== 'closed') continue
      const state = this.#edgeTo(edge.chain)
      if (state !== 'broken') edge.state = state
      else if (!edge.policy.startsWith('ignore'))
        this.#report(
          'parent',
          time,
          job.id,
          `It was retried, but its dependency ${edge.chain} failed or was cancelled.`,
        )
    }
  }

  /** A running job adds dependencies, and can be released once more. */
  #waitFor(job: Tracked, waitsFor: readonly NewEdge[]): void {
    for (const { on, policy } of waitsFor) {
      const chain = this.jobs.get(on)?.chain ?? on
      if (job.edges.some((edge) => edge.chain === chain)) continue
      job.edges.push({ chain, policy, state: this.#edgeTo(chain) })
      append(this.#dependents, chain, job)
    }
    job.isReleased = false
  }

  #checkRelease(time: Millis, job: Tracked): void {
    if (pending(job) > 0) this.#report('parent', time, job.id, 'It was released before its dependencies had ended.')
    if (job.isReleased) this.#report('parent', time, job.id, 'It was released a second time.')
    job.isReleased = true
  }

  /** If all jobs of the chain have ended, its dependents are counted down, or their edges become broken. */
  #release(last: Tracked, outcome: FinishedState, now: Time): void {
    const { chain } = last
    if (this.#chains.get(chain)?.some(isUnfinished) === true) return
    for (const each of this.#listeners) each.chainEnded?.(last, outcome)
    for (const job of this.#dependents.get(chain) ?? []) {
      const completed = outcome === 'completed'
      const edge = job.edges.find(
        (each) => each.chain === chain && (each.state === 'open' || (completed && each.state !== 'ended')),
      )
      if (edge === undefined || job.state === 'removed') continue
      const before = edge.state
      edge.state = completed ? 'ended' : 'broken'
      if (before === 'closed') continue // it was counted down when it was closed
      if (before === 'broken' && job.state === 'waiting-children' && pending(job) > 0) job.fence++
      if (job.state !== 'waiting-children') continue
      if (edge.state === 'broken') job.fence++
      else if (pending(job) === 0) {
        job.fence++
        job.state = released(job.runAt, now)
        if (job.state === 'waiting') job.runAt = undefined
        job.isReleased = true
        this.#expect(job.id, job.state)
      }
    }
  }

  #claim(landing: Landing, record: JobRecord): void {
    const { time, process } = landing
    const job = this.jobs.get(record.id)
    if (job === undefined)
      return this.#report('claim', time, record.id, `${process} claimed a job that was never added.`)
    if (job.state !== 'waiting') this.#report('claim', time, job.id, `${process} claimed it while it was ${job.state}.`)
    if (record.fence <= job.fence)
      this.#report('claim', time, job.id, `A claim changed its fence from ${job.fence} to ${record.fence}.`)
    if (record.attempt !== job.attempt + 1 || record.attempt > job.attempts) {
      this.#report(
        'claim',
        time,
        job.id,
        `Attempt ${record.attempt} of ${job.attempts} followed attempt ${job.attempt}.`,
      )
    }
    if (pending(job) > 0)
      this.#report('parent', time, job.id, `${process} claimed it before its dependencies had ended.`)
    job.state = 'active'
    job.fence = record.fence
    job.attempt = record.attempt
    job.leaseUntil = record.leaseUntil ?? 0
    this.#expect(job.id, 'active')
    for (const each of this.#listeners) each.claimed?.(job, record, landing)
  }

  /** Compares a job with the store directly after the landing. From then on the ledger uses the store's values. */
  #compare({ time }: Landing, id: string, record: JobRecord | undefined): void {
    const job = this.jobs.get(id)
    if (job === undefined) return
    const found = record === undefined ? 'removed' : `${record.state}@${record.fence}, attempt ${record.attempt}`
    const known = job.state === 'removed' ? 'removed' : `${job.state}@${job.fence}, attempt ${job.attempt}`
    if (found !== known) {
      const waits = record?.state === 'waiting-children' || job.state === 'waiting-children'
      this.#report(
        waits && job.edges.length > 0 ? 'parent' : 'state',
        time,
        id,
        `It is ${found}, but should be ${known}.`,
      )
    }
    job.state = record?.state ?? 'removed'
    if (record === undefined) return
    job.fence = record.fence
    job.attempt = record.attempt
    job.runAt = record.runAt
    job.leaseUntil = record.leaseUntil ?? 0
  }
}

function pending({ edges }: Tracked): number {
  return edges.filter(({ state }) => state === 'open' || state === 'broken').length
}

function isUnfinished({ state }: Tracked): boolean {
  return state !== 'removed' && !isFinished(state)
}

function append<T>(lists: Map<string, T[]>, key: string, item: T): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [item])
  else list.push(item)
}
