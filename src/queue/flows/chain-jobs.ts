// queue/flows/chain-jobs.ts: the jobs of a chain: finding them, waiting for the last, removing them all.
import { MillraceError } from '../../job/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { remove } from '../../job/lifecycle.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { Page, Query, StoreEvent } from '../../store/store.js'
import { awaitEnd, removed } from '../operations/result.js'
import type { Ending } from '../operations/result.js'
import { hasDependents, removeDependents } from '../operations/cascade.js'
import type { JobOperations } from '../operations/job-operations.js'
import type { ResultOptions } from '../job.js'
import type { Session } from '../../store/session.js'

/** Jobs read at a time. */
const PAGE = 500

/** How often a chain is looked at again that goes on while it is removed. */
const RACES = 100

/** The chain of a job: by its id, unless that is another's. */
async function chainOf(way: Pick<Session, 'find' | 'get'>, id: string): Promise<string> {
  const { items } = await way.find({ chain: id, limit: 1 })
  return items.length > 0 ? id : ((await way.get(id))?.chainId ?? id)
}

/** The last job of a chain, which lies in one queue as a whole. */
async function newest(way: Pick<Session, 'find'>, chain: string, queue: string): Promise<JobRecord | undefined> {
  return (await way.find({ queue, chain, order: 'newest', limit: 1 })).items[0]
}

/** The job at which a chain stands. */
export async function lastJob(way: Session, id: string, queue: string): Promise<JobRecord> {
  const record = (await newest(way, id, queue)) ?? (await newest(way, await chainOf(way, id), queue))
  if (record === undefined) throw noChain(id, queue)
  return record
}

/** All jobs of a chain, in order. */
export async function chainJobs(way: Session, id: string, queue: string): Promise<readonly JobRecord[]> {
  const chain = await chainOf(way, id)
  const records: JobRecord[] = []
  let cursor: string | undefined
  do {
    const page = await way.find({ queue, chain, limit: PAGE, ...(cursor !== undefined && { cursor }) })
    records.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return records.toSorted((a, b) => a.chainIndex - b.chainIndex)
}

/** One page of them: they are inserted in the order of the chain. */
export async function chainPage(way: Session, id: string, queue: string, page: Query): Promise<Page<JobRecord>> {
  return way.find({ queue, chain: await chainOf(way, id), ...page })
}

/** Removes all jobs of a chain, unless others wait for it; or those as well. By page: a chain may be long. */
export async function removeChain(
  desk: JobOperations,
  way: Session,
  id: string,
  queue: string,
  cascade: boolean,
): Promise<number> {
  const chain = await chainOf(way, id)
  let count = 0
  for (let races = 0; races < RACES;) {
    // Only the last can be unfinished, and those that wait for the chain wait for any of its jobs.
    const last = await newest(way, chain, queue)
    if (last === undefined) break
    if (cascade) await stepwise(removeDependents(desk, [last.id], way))
    else if (!isFinished(last.state)) await refuseAwaited(way, id, last.id)
    // From the first on: the chain has not ended before the last is gone.
    let page: Page<JobRecord>
    do {
      page = await way.find({ queue, chain, limit: PAGE })
      const removed = await stepwise(desk.actingOnAll(page.items, remove, way))
      count += removed
      if (removed === 0) races++
    } while (page.cursor !== undefined && races < RACES)
    races++
  }
  return count
}

async function refuseAwaited(way: Session, id: string, member: string): Promise<void> {
  const { jobs } = await way.details({ jobs: [member], parts: ['dependents'] })
  const waiting = jobs[0]!.dependents.filter(({ state }) => state === 'open').map(({ dependent }) => dependent)
  if (waiting.length > 0) throw hasDependents('Chain', id, waiting)
}

/** Waits for the end of a chain, by push: what its last job comes to. */
export function chainResult(desk: JobOperations, id: string, queue: string, options: ResultOptions): Promise<unknown> {
  return awaitEnd(desk, `chain ${id}`, id, options, (end) => new ChainEar(desk, id, queue, end).begin())
}

/** Follows a chain by its events. A job and the one it is continued with are told of together, so none is missed. */
class ChainEar {
  readonly #desk: JobOperations
  readonly #id: string
  readonly #queue: string
  readonly #end: Ending
  #chain: string | undefined
  /** Events that came before it was known which chain is meant, as far as it may be this one. */
  #early: StoreEvent[] = []
  readonly #unfinished = new Set<string>()
  /** Jobs that have ended during a look, which may have seen them before. */
  readonly #ended = new Set<string>()
  #looks = 0
  #last: StoreEvent | undefined
  #judging = false
  #looked = false

  constructor(desk: JobOperations, id: string, queue: string, end: Ending) {
    this.#desk = desk
    this.#id = id
    this.#queue = queue
    this.#end = end
  }

  /** Opens the ear before the first look, so that nothing falls between. */
  begin(): () => void {
    const stop = this.#desk.feed.all((event) => {
      if (event === undefined) this.#lookAgain()
      else if (event.id !== '') this.#hear(event)
    })
    this.#look().catch(this.#end.fail)
    const forget = this.#desk.rereading.add({
      jobs: () => (this.#unfinished.size > 0 ? [...this.#unfinished] : [this.#chain ?? this.#id]),
      see: (record) => {
        if (record === undefined || isFinished(record.state)) this.#lookAgain(() => {}) // and again in the next round
      },
    })
    return () => {
      stop()
      forget()
    }
  }

  #lookAgain(failed: (error: unknown) => void = this.#end.fail): void {
    this.#unfinished.clear()
    this.#last = undefined
    this.#looked = false
    this.#look().catch(failed)
  }

  async #look(): Promise<void> {
    const way = this.#desk.way()
    let last: JobRecord | undefined
    this.#looks++
    try {
      this.#chain ??= await chainOf(way, this.#id)
      for (const event of this.#early.splice(0)) this.#hear(event)
      last = await newest(way, this.#chain, this.#queue)
    } finally {
      this.#looks--
    }
    this.#looked = true
    if (last !== undefined && !isFinished(last.state) && !this.#ended.has(last.id)) this.#unfinished.add(last.id)
    if (this.#looks === 0) this.#ended.clear()
    if (this.#unfinished.size > 0) return
    if (this.#last !== undefined) this.#judge(this.#last)
    else if (last === undefined) this.#end.fail(noChain(this.#id, this.#queue))
    else this.#end.conclude(last.state, last)
  }

  #judge({ type: state, id }: StoreEvent): void {
    if (!this.#looked || this.#unfinished.size > 0) return
    if (state === 'removed') this.#end.fail(removed(id))
    else this.#end.conclude(state, this.#last!)
  }

  #hear(event: StoreEvent): void {
    const { id, type } = event
    const chain = event.chain ?? id
    if (event.queue !== this.#queue) return
    if (this.#chain === undefined) return void ((chain === this.#id || id === this.#id) && this.#early.push(event))
    if (chain !== this.#chain) return
    const ends = isFinished(type as never) || type === 'removed'
    if (!ends) {
      if (type === 'waiting' || type === 'delayed' || type === 'waiting-children' || type === 'active') {
        this.#unfinished.add(id)
        this.#ended.delete(id)
      }
      return
    }
    if (!this.#unfinished.delete(id) && type === 'removed') return // it had ended before
    if (this.#looks > 0) this.#ended.add(id)
    this.#last = event
    if (this.#judging) return
    this.#judging = true
    // What the same commit has to tell of the next job comes with it.
    queueMicrotask(() => {
      this.#judging = false
      this.#judge(this.#last!)
    })
  }
}

/** The error for a chain that is not there. */
export function noChain(id: string, queue: string): MillraceError {
  const where = ` in queue '${queue}'`
  return new MillraceError(
    'JOB_NOT_FOUND',
    `There is no chain ${id}${where}: it was never added there, or its jobs have been removed.`,
    { details: { id } },
  )
}
