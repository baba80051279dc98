// server/store-protocol/grammar.ts: which groups of changes a caller may send. What follows from the group alone is refused at
// once; what depends on jobs in the store becomes a demand.
import { deliveryOfEnd, DELIVERIES } from '../../job/webhooks.js'
import type { Insert, Move, Note, Release } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { FinishedState, JobRecord } from '../../job/job.js'
import { headerOf } from '../../job/record.js'
import { isSignalId } from '../../job/signals.js'
import { RESERVED_IDS, isReserved } from '../../job/values/names.js'
import type { Group } from '../../store/batch.js'
import { exactText } from '../../store/wire/exact-json.js'
import { whyNoPut } from './cell-rules.js'
import type { Demand, Facts } from './facts.js'
import type { HeldJob, HeldJobs } from './held-jobs.js'
import { isNamedMove, maybeNamedMove } from './named-moves.js'
import type { Scope } from './scope.js'

/** What the grammar needs to know besides the group. */
export interface GrammarParts {
  readonly scope: Scope
  readonly held: HeldJobs
  /** Whether a job of that queue may report its end to that URL. */
  mayCall(queue: string, url: string): boolean
}

/** What a group demands of the store; or why it is refused whatever the store holds. */
export type Examined = { readonly demands: readonly Demand[] } | { readonly refused: string }

class Refused extends Error {}

/** Examines a group of changes. */
export function examine(group: Group, parts: GrammarParts): Examined {
  const examination = new Examination(group, parts)
  try {
    examination.run()
    return { demands: examination.demands }
  } catch (error) {
    if (error instanceof Refused) return { refused: error.message }
    throw error
  }
}

/** States that a handler's attempt can end in. */
const SETTLED: ReadonlySet<string> = new Set(['completed', 'failed', 'waiting', 'delayed', 'waiting-children'])

class Examination {
  readonly demands: Demand[] = []
  readonly #group: Group
  readonly #scope: Scope
  readonly #parts: GrammarParts
  /** The jobs inserted before the change that is looked at. */
  readonly #inserted = new Map<string, Insert['job']>()
  readonly #moves: readonly Move[]

  constructor(group: Group, parts: GrammarParts) {
    this.#group = group
    this.#parts = parts
    this.#scope = parts.scope
    this.#moves = group.filter((change) => change.kind === 'move')
  }

  run(): void {
    for (const [at, change] of this.#group.entries()) {
      switch (change.kind) {
        case 'insert':
          this.#insert(at, change)
          this.#inserted.set(change.job.id, change.job)
          break
        case 'move':
          this.#move(at, change)
          break
        case 'note':
          this.#note(at, change)
          break
        case 'release':
          this.#release(at, change)
          break
        case 'put': {
          const why = whyNoPut(this.#scope, change, this.#group)
          if (why !== undefined) throw new Refused(why)
        }
      }
    }
  }

  #insert(at: number, insert: Insert): void {
    const { job, edges } = insert
    const { admin, holds } = this.#scope
    if (job.queue === DELIVERIES) return this.#delivery(at, insert)
    if (isReserved(job.queue) && !admin) throw new Refused(`add jobs to '${job.queue}', which is Millrace's own`)
    if (!holds(job.queue)) throw new Refused(`add jobs to the queue '${job.queue}'`)
    if (job.kind === 'schedule' && !admin) throw new Refused('add schedules')
    if (job.kind === 'signal') return this.#signal(at, insert)
    if (!admin && RESERVED_IDS.some((prefix) => job.id.startsWith(prefix))) {
      throw new Refused(`add a job with the id '${job.id}', whose beginning is reserved`)
    }
    const { webhook } = job.extras ?? {}
    if (webhook !== undefined && !this.#parts.mayCall(job.queue, webhook.url)) {
      throw new Refused(
        `have the end of a job reported to that URL: the server's queue '${job.queue}' has no webhook there`,
      )
    }
    this.#dedup(at, insert)
    this.#chain(at, insert)
    this.#parent(at, insert)
    this.#edges(at, edges)
  }

  /** A dedup key names the queue that it holds in; a global one all of them. */
  #dedup(at: number, { job }: Insert): void {
    if (job.dedup === undefined || (this.#scope.everything && this.#scope.admin)) return
    const { key } = job.dedup
    const parts = listIn(key)
    if (parts?.length === 4 && !this.#scope.admin) {
      // The key of a run of a schedule passes on to the next job of its chain.
      return this.#demandMoved(at, job.chainId, (moved) => moved.chainId === job.chainId && moved.dedup?.key === key)
    }
    const queue = parts?.length === 4 ? parts[1] : parts !== undefined && parts.length >= 2 ? parts[0] : undefined
    if (queue === undefined ? !this.#scope.everything : !this.#scope.holds(queue)) {
      throw new Refused(`hold the deduplication key ${key.slice(0, 100)}, which is not of one of its queues`)
    }
  }

  /** A job begins a chain, is linked to one of its group, or goes on with that of a job of the group. */
  #chain(at: number, { job }: Insert): void {
    const { chainId } = job
    if (chainId === job.id || this.#isChainOfGroup(chainId)) return
    if (!this.#scope.works) throw new Refused('continue a chain of jobs that it does not add')
    this.#demandMoved(at, chainId, (moved) => moved.chainId === chainId)
  }

  #isChainOfGroup(chainId: string): boolean {
    for (const each of this.#inserted.values()) if (each.chainId === chainId) return true
    return false
  }

  #parent(at: number, { job }: Insert): void {
    const { parentId, chainId } = job
    if (parentId === undefined || this.#inserted.has(parentId)) return
    const { works, admin } = this.#scope
    if (!works) throw new Refused('add children of a job that it does not add')
    this.#demand({
      change: at,
      why: 'missing',
      id: parentId,
      jobs: [parentId, ...this.#moves.map(({ id }) => id)],
      test: (facts) => {
        const goesOn = this.#moved(facts).some((moved) => moved.chainId === chainId && moved.parentId === parentId)
        const parent = facts.job(parentId)
        if (goesOn || parent === undefined) return goesOn
        return admin ? this.#scope.holds(parent.queue) : this.#isHeld(parent) && parent.state === 'active'
      },
    })
  }

  #edges(at: number, edges: Insert['edges']): void {
    if (this.#scope.everything) return
    for (const { on } of edges) {
      if (this.#inserted.has(on)) continue
      const inScope = (facts: Facts): boolean => this.#isKnown(facts.job(on))
      this.#demand({ change: at, why: 'missing', id: on, jobs: [on], test: inScope })
    }
  }

  /** The row of a signal, of a job in scope. */
  #signal(at: number, { job, edges }: Insert): void {
    const { parentId } = job
    if (!isSignalId(job.id) || parentId === undefined || edges.length > 0 || job.chainId !== job.id) {
      throw new Refused('add a row of a signal that is none')
    }
    if (job.dedup !== undefined || job.extras !== undefined) throw new Refused('add a row of a signal that is none')
    const test = (facts: Facts): boolean => {
      const parent = facts.job(parentId)
      return parent?.kind === 'job' && parent.queue === job.queue && this.#isKnown(parent)
    }
    this.#demand({ change: at, why: 'missing', id: parentId, jobs: [parentId], test })
  }

  /** A delivery to a webhook, as the end of the very job makes it. */
  #delivery(at: number, insert: Insert): void {
    const id = deliveredJob(insert)
    const move = this.#moves.find((each) => each.id === id)
    if (!this.#scope.works || id === undefined || move === undefined) {
      throw new Refused('add deliveries to webhooks but with the end of their jobs')
    }
    const test = (facts: Facts): boolean => {
      const job = facts.job(id)
      if (job === undefined || job.fence !== move.fence || !this.#isKnown(job)) return false
      if (isFinished(move.to as FinishedState) && !isFinished(job.state)) {
        const expected = deliveryOfEnd(headerOf(job), move.to as FinishedState, move.set)
        return expected !== undefined && exactText(expected) === exactText(insert)
      }
      return this.#scope.admin && isRedelivery(insert, job)
    }
    this.#demand({ change: at, why: 'fence', id, jobs: [id], test })
  }

  #move(at: number, move: Move): void {
    const { admin, works } = this.#scope
    if (move.waitsFor !== undefined) this.#edges(at, move.waitsFor)
    if (admin) return this.#demandKnown(at, move)
    if (!move.held) {
      const why = maybeNamedMove(move)
      if (why !== undefined) throw new Refused(why)
      const queues = this.#group.flatMap((change) => (change.kind === 'insert' ? [change.job.queue] : []))
      const test = (facts: Facts): boolean => {
        const job = facts.job(move.id)
        return job !== undefined && this.#isKnown(job) && isNamedMove(move, job, this.#group, facts, works)
      }
      return this.#demand({ change: at, why: 'fence', id: move.id, jobs: [move.id], limits: queues, test })
    }
    const { set, to } = move
    if (!works) throw new Refused('settle jobs')
    if (!SETTLED.has(to) || move.reaps === true || move.reopens === true) throw new Refused(`settle a job as ${to}`)
    if (set.stalls !== undefined || set.stale !== undefined) throw new Refused('count stalls')
    this.#demandHeld(at, move)
  }

  #note(at: number, note: Note): void {
    const { admin, works } = this.#scope
    if (admin) return this.#demandKnown(at, note)
    if (!works || !note.held) throw new Refused('write beside jobs that it does not hold')
    if (note.events?.some(({ type }) => type !== 'phase') === true) throw new Refused('publish events of others')
    this.#demandHeld(at, note)
  }

  /** A chain ends with a job of it that ends in the same group. */
  #release(at: number, { chain, outcome }: Release): void {
    const { admin } = this.#scope
    if (this.#moves.length === 0) throw new Refused('end a chain without a job of it')
    this.#demandMoved(at, chain, (moved, { to }) => moved.chainId === chain && (admin || to === outcome))
  }

  /** The jobs of the group's moves, as far as the caller may move them. */
  #moved(facts: Facts): readonly HeldJob[] {
    return this.#moves.flatMap((move) => {
      const job = facts.fenced(move.id, this.#fenceOf(move)) ?? undefined
      return job === undefined ? [] : [job]
    })
  }

  /** A demand that one of the moved jobs fulfils; that it may be moved is demanded by its move. */
  #demandMoved(at: number, id: string, fits: (job: HeldJob, move: Move) => boolean): void {
    const test = (facts: Facts): boolean =>
      this.#moves.some((move) => {
        const job = facts.fenced(move.id, this.#fenceOf(move))
        return job !== undefined && fits(job, move)
      })
    const unknown = this.#moves.filter((move) => this.#parts.held.find(move.id, this.#fenceOf(move)) === undefined)
    this.#demand({ change: at, why: 'missing', id, jobs: unknown.map((move) => move.id), test })
  }

  /** The fence that the job must have before the group: moves of one group raise it. */
  #fenceOf(change: Move | Note): number {
    let earlier = 0
    for (const each of this.#group) {
      if (each === change) break
      if (each.kind === 'move' && each.id === change.id) earlier++
    }
    return change.fence - earlier
  }

  /** The job is in a queue in scope. */
  #demandKnown(at: number, change: Move | Note): void {
    if (this.#scope.everything) return
    const fence = this.#fenceOf(change)
    this.#demandFenced(at, change, fence, (job) => this.#scope.holds(job.queue) && !isReserved(job.queue))
  }

  /** The caller holds the job. */
  #demandHeld(at: number, change: Move | Note): void {
    this.#demandFenced(at, change, this.#fenceOf(change), (job) => this.#isHeld(job))
  }

  #demandFenced(at: number, { id }: Move | Note, fence: number, fits: (job: HeldJob) => boolean): void {
    const remembered = this.#parts.held.find(id, fence)
    if (remembered !== undefined && fits(remembered)) return
    const test = (facts: Facts): boolean => {
      const job = facts.fenced(id, fence)
      return job !== undefined && fits(job)
    }
    this.#demand({ change: at, why: 'fence', id, jobs: [id], test })
  }

  #isHeld({ worker, queue }: HeldJob): boolean {
    return worker?.startsWith(this.#scope.prefix) === true && this.#scope.holds(queue) && !isReserved(queue)
  }

  #isKnown(job: JobRecord | undefined): boolean {
    return job !== undefined && this.#scope.holds(job.queue)
  }

  #demand(demand: Demand): void {
    this.demands.push(demand)
  }
}

/** The list of texts that a dedup key is. */
function listIn(key: string): readonly string[] | undefined {
  try {
    const parts: unknown = JSON.parse(key)
    return Array.isArray(parts) && parts.every((part) => typeof part === 'string') ? parts : undefined
  } catch {
    return undefined
  }
}

interface DeliveryData {
  readonly url?: unknown
  readonly job?: { readonly id?: unknown }
}

/** The job whose end a delivery tells of. */
function deliveredJob({ job }: Insert): string | undefined {
  const { job: about } = (job.data === undefined ? {} : (JSON.parse(job.data) ?? {})) as DeliveryData
  return typeof about?.id === 'string' ? about.id : undefined
}

/** Whether a delivery goes where the job that it tells of says. */
function isRedelivery({ job, edges }: Insert, { queue, extras }: JobRecord): boolean {
  const { url } = JSON.parse(job.data!) as DeliveryData
  return url === extras?.webhook?.url && job.name === queue && job.kind === 'job' && edges.length === 0
}
