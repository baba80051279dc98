// testing/check/flows.ts: checks dependency results, siblings that end before their parent, and continuations of chains.
import type { Insert, Move } from '../../job/change.js'
import type { FinishedState, JobRecord } from '../../job/job.js'
import { isSignalId } from '../../job/signals.js'
import type { Ended } from '../../queue/flows/chain-types.js'
import type { ScriptedResult } from '../script/acting.js'
import type { DependenciesRead, Landing } from './simulated-history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'

/** Tracks what jobs wait for, and which results their handlers read. */
export class FlowChecks implements LedgerListener {
  readonly #report: Report
  /** The outcomes of each chain: one for each time it ended. */
  readonly #ends = new Map<string, Set<string>>()
  /** The last result of each job. */
  readonly #results = new Map<string, string | undefined>()
  readonly #chains = new Map<string, Tracked[]>()
  /** The parent of the first job of each chain. */
  readonly #parents = new Map<string, string | undefined>()
  /** The chains that a job had waited for when it was claimed, by job and fence. */
  readonly #waited = new Map<string, readonly string[]>()

  constructor(report: Report) {
    this.#report = report
  }

  inserted(job: Tracked, { job: { chainIndex, parentId } }: Insert, { time, batch }: Landing): void {
    const chain = this.#chains.get(job.chain)
    if (chainIndex === 0) this.#parents.set(job.chain, parentId)
    if (chain === undefined) this.#chains.set(job.chain, [job])
    else chain.push(job)
    if (chainIndex === 0) return
    const group = batch.groups.find((each) =>
      each.some((change) => change.kind === 'insert' && change.job.id === job.id),
    )
    if (parentId !== this.#parents.get(job.chain)) {
      const [expected, found] = [this.#parents.get(job.chain), parentId].map((each) => each ?? 'no job')
      this.#report(
        'chain',
        time,
        job.id,
        `It continues a chain of children of ${expected}, but is a child of ${found}.`,
      )
    }
    const ends = group?.some((change) => change.kind === 'move' && change.to === 'completed') === true
    if (!ends) this.#report('chain', time, job.id, 'It continues a chain, but its group completed no job.')
  }

  moving(job: Tracked, move: Move, landing: Landing): void {
    if (move.to === 'removed') this.#usePrevious(job)
    if (move.to === 'completed') {
      this.#results.set(job.id, move.set.result)
      this.#checkNext(job, move, landing)
    }
    if (move.to === 'failed' && move.set.error?.code === 'DEPENDENCY_FAILED') {
      const ends = job.edges.some(({ state, policy }) => state === 'broken' && waitsForSiblings(policy))
      const open = job.edges.filter(({ state, policy }) => state === 'open' && policy.endsWith('-all'))
      if (ends && open.length > 0) {
        const left = open.map(({ chain }) => chain).join(', ')
        this.#report('siblings', landing.time, job.id, `It failed before its children ${left} had ended.`)
      }
    }
  }

  /** A scripted result names the next job of the chain. */
  #checkNext(job: Tracked, { set }: Move, { time, batch }: Landing): void {
    const result = set.result === undefined ? undefined : (JSON.parse(set.result) as Partial<ScriptedResult> | null)
    const expected = typeof result?.run === 'number' ? result.next : undefined
    const group = batch.groups.find((each) =>
      each.some((change) => change.kind === 'move' && change.id === job.id && change.set === set),
    )
    const next = (group ?? []).flatMap((change) =>
      change.kind === 'insert' && change.job.chainId === job.chain ? [change.job.id] : [],
    )
    const scripted = typeof result?.run === 'number'
    if (next.length <= 1 && (!scripted || next[0] === expected)) return
    this.#report(
      'chain',
      time,
      job.id,
      `Its next job should be ${expected ?? 'none'}, but is ${next.join(', ') || 'none'}.`,
    )
  }

  chainEnded({ id, chain }: Tracked, outcome: FinishedState): void {
    const ends = this.#ends.get(chain) ?? new Set()
    this.#ends.set(chain, ends)
    ends.add(outcome === 'completed' ? `completed ${this.#results.get(id)}` : outcome)
  }

  /** If the last job of a chain is removed, the outcome of the job before it is that of the chain. */
  #usePrevious(removed: Tracked): void {
    const last = this.#chains.get(removed.chain)?.findLast((each) => each !== removed && each.state !== 'removed')
    if (last?.state === 'completed') this.chainEnded(last, 'completed')
  }

  claimed(job: Tracked, { fence }: JobRecord): void {
    if (job.edges.length > 0) this.#waited.set(`${job.id}@${fence}`, chainsOf(job))
  }

  /** A handler read how its job's dependencies ended. */
  dependenciesRead({ time, id, fence, ended }: DependenciesRead, job: Tracked | undefined): void {
    if (job === undefined || job.state === 'removed') return // its edges are removed with it
    const waited = this.#waited.get(`${id}@${fence}`) ?? []
    const read = ended.map((each) => each.id)
    // If this run has lost its lease, another run may have added dependencies in the meantime.
    const all = job.fence === fence ? waited : chainsOf(job)
    const missing = waited.filter((chain) => !read.includes(chain))
    const foreign = read.filter((chain) => !all.includes(chain))
    for (const chain of missing) this.#report('results', time, id, `It did not read the outcome of ${chain}.`)
    for (const chain of foreign)
      this.#report('results', time, id, `It read the outcome of ${chain}, for which it did not wait.`)
    for (const each of ended) {
      if (!foreign.includes(each.id) && this.#ends.get(each.id)?.has(textOf(each)) !== true) {
        this.#report('results', time, id, `It read that ${each.id} ended ${textOf(each)}, but that did not happen.`)
      }
    }
  }
}

function waitsForSiblings(policy: string): boolean {
  return policy === 'fail-all' || policy === 'remove-all'
}

function chainsOf({ edges }: Tracked): readonly string[] {
  return edges.map(({ chain }) => chain).filter((chain) => !isSignalId(chain))
}

function textOf(ended: Ended): string {
  return ended.status === 'completed' ? `completed ${JSON.stringify(ended.result)}` : ended.status
}
