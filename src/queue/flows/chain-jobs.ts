// queue/flows/chain-jobs.ts: reads the jobs of a chain, waits for the last one, and removes them all.
import { MillraceError } from '../../job/errors/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { remove } from '../../job/lifecycle.js'
import { runSteps, step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { PAGE_SIZE, pages } from '../../store/read-pages.js'
import { microtask } from '../../store/runtime.js'
import type { Page, Query } from '../../store/store.js'
import type { StoreEvent } from '../../job/events.js'
import { awaitEnd, jobRemoved } from '../operations/result.js'
import type { EndHandler } from '../operations/result.js'
import { hasDependents, removeDependents } from '../operations/cascade.js'
import { changeJobs, MAX_RACES } from '../operations/decide.js'
import type { JobOperations } from '../operations/job-operations.js'
import type { ResultOptions } from '../job.js'
import type { Session } from '../../store/session.js'

/** The chain of a job: its own id, unless the job belongs to another chain. */
function* chainOf(session: Session, id: string): Steps<string> {
  const { items } = yield* step(session.find({ chain: id, limit: 1 }))
  return items.length > 0 ? id : ((yield* step(session.get(id)))?.chainId ?? id)
}

/** The last job of a chain. All jobs of a chain are in one queue. */
function* newestJob(session: Session, chain: string, queue: string): Steps<JobRecord | undefined> {
  return (yield* step(session.find({ queue, chain, order: 'newest', limit: 1 }))).items[0]
}

/** The current job of a chain: its last. */
export function* lastJob(session: Session, id: string, queue: string): Steps<JobRecord> {
  const record =
    (yield* newestJob(session, id, queue)) ?? (yield* newestJob(session, yield* chainOf(session, id), queue))
  if (record === undefined) throw chainNotFound(id, queue)
  return record
}

/** All jobs of a chain, in order. */
export function* chainJobs(session: Session, id: string, queue: string): Steps<readonly JobRecord[]> {
  const chain = yield* chainOf(session, id)
  const records: JobRecord[] = []
  for (const page of pages(session, { queue, chain })) records.push(...(yield* page))
  return records.toSorted((a, b) => a.chainIndex - b.chainIndex)
}

/** One page of a chain's jobs. They are inserted in the order of the chain. */
export function* chainPage(session: Session, id: string, queue: string, page: Query): Steps<Page<JobRecord>> {
  return yield* step(session.find({ queue, chain: yield* chainOf(session, id), ...page }))
}

/**
 * Removes all jobs of a chain, unless other jobs wait for it; with `cascade`, removes those too. Works by page, because a
 * chain may be long.
 */
export function* removeChain(session: Session, id: string, queue: string, cascade: boolean): Steps<number> {
  const chain = yield* chainOf(session, id)
  let count = 0
  for (let races = 0; races < MAX_RACES;) {
    // Only the last job can be unfinished, and every job of the chain has the dependents of the chain.
    const last = yield* newestJob(session, chain, queue)
    if (last === undefined) break
    if (cascade) yield* removeDependents(session, [last.id])
    else if (!isFinished(last.state)) yield* refuseWithDependents(session, id, last.id)
    // First job first: the chain does not end before its last job is removed.
    let page: Page<JobRecord>
    do {
      page = yield* step(session.find({ queue, chain, limit: PAGE_SIZE }))
      const removed = yield* changeJobs(session, page.items, remove)
      count += removed
      if (removed === 0) races++
    } while (page.cursor !== undefined && races < MAX_RACES)
    races++
  }
  return count
}

function* refuseWithDependents(session: Session, id: string, member: string): Steps<void> {
  const { jobs } = yield* step(session.details({ jobs: [member], parts: ['dependents'] }))
  const dependents = jobs[0]!.dependents.filter(({ state }) => state === 'open').map(({ dependent }) => dependent)
  if (dependents.length > 0) throw hasDependents('Chain', id, dependents)
}

/** Waits for the end of a chain, by events, and returns the outcome of its last job. */
export function chainResult(
  operations: JobOperations,
  id: string,
  queue: string,
  options: ResultOptions,
): Promise<unknown> {
  return awaitEnd(operations, `chain ${id}`, id, options, (end) => new ChainWatcher(operations, id, queue, end).start())
}

/** Follows a chain by its events. One notice contains both a job's end and its continuation, so none is missed. */
class ChainWatcher {
  readonly #operations: JobOperations
  readonly #id: string
  readonly #queue: string
  readonly #end: EndHandler
  #chain: string | undefined
  /** Events received before the id of the chain is known, if they may belong to it. */
  #earlyEvents: StoreEvent[] = []
  readonly #unfinished = new Set<string>()
  /** Jobs that ended during a read, which may have returned their earlier state. */
  readonly #ended = new Set<string>()
  #reads = 0
  #last: StoreEvent | undefined
  #concluding = false
  #hasRead = false

  constructor(operations: JobOperations, id: string, queue: string, end: EndHandler) {
    this.#operations = operations
    this.#id = id
    this.#queue = queue
    this.#end = end
  }

  /** Subscribes before the first read, so that no event is missed in between. */
  start(): () => void {
    const stop = this.#operations.subscription.all((event) => {
      if (event === undefined) this.#readAgain()
      else if (event.id !== '') this.#receive(event)
    })
    this.#read().catch(this.#end.fail)
    const stopPolling = this.#operations.rereader.add({
      jobs: () => (this.#unfinished.size > 0 ? [...this.#unfinished] : [this.#chain ?? this.#id]),
      receive: (record) => {
        // A failed read is repeated in the next round.
        if (record === undefined || isFinished(record.state)) this.#readAgain(() => {})
      },
    })
    return () => {
      stop()
      stopPolling()
    }
  }

  #readAgain(failed: (error: unknown) => void = this.#end.fail): void {
    this.#unfinished.clear()
    this.#last = undefined
    this.#hasRead = false
    this.#read().catch(failed)
  }

  async #read(): Promise<void> {
    const session = this.#operations.session()
    let last: JobRecord | undefined
    this.#reads++
    try {
      this.#chain ??= await runSteps(chainOf(session, this.#id))
      for (const event of this.#earlyEvents.splice(0)) this.#receive(event)
      last = await runSteps(newestJob(session, this.#chain, this.#queue))
    } finally {
      this.#reads--
    }
    this.#hasRead = true
    if (last !== undefined && !isFinished(last.state) && !this.#ended.has(last.id)) this.#unfinished.add(last.id)
    if (this.#reads === 0) this.#ended.clear()
    if (this.#unfinished.size > 0) return
    if (this.#last !== undefined) this.#conclude(this.#last)
    else if (last === undefined) this.#end.fail(chainNotFound(this.#id, this.#queue))
    else this.#end.conclude(last.state, last)
  }

  #conclude({ type: state, id }: StoreEvent): void {
    if (!this.#hasRead || this.#unfinished.size > 0) return
    if (state === 'removed') this.#end.fail(jobRemoved(id))
    else this.#end.conclude(state, this.#last!)
  }

  #receive(event: StoreEvent): void {
    const { id, type } = event
    const chain = event.chain ?? id
    if (event.queue !== this.#queue) return
    if (this.#chain === undefined) {
      return void ((chain === this.#id || id === this.#id) && this.#earlyEvents.push(event))
    }
    if (chain !== this.#chain) return
    const ends = isFinished(type as never) || type === 'removed'
    if (!ends) {
      if (type === 'waiting' || type === 'delayed' || type === 'waiting-children' || type === 'active') {
        this.#unfinished.add(id)
        this.#ended.delete(id)
      }
      return
    }
    if (!this.#unfinished.delete(id) && type === 'removed') return // it had already ended
    if (this.#reads > 0) this.#ended.add(id)
    this.#last = event
    if (this.#concluding) return
    this.#concluding = true
    // The event of the continuation arrives in the same notice.
    microtask(() => {
      this.#concluding = false
      this.#conclude(this.#last!)
    })
  }
}

/** The error for a chain that does not exist. */
export function chainNotFound(id: string, queue: string): MillraceError {
  const where = ` in queue '${queue}'`
  return new MillraceError(
    'JOB_NOT_FOUND',
    `There is no chain ${id}${where}: it was never added there, or its jobs have been removed.`,
    { details: { id } },
  )
}
