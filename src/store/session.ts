// store/session.ts: where a call goes: into the next batch, or into a transaction.
import { MillraceError } from '../job/errors/errors.js'
import type { JobHeader, JobRecord, Time } from '../job/job.js'
import { commitWithin, joinedTransaction, openingTransaction, requireTransactions } from './transaction-context.js'
import type { Evidence, OpenTransaction } from './transaction-context.js'
import type { Connection } from './connection.js'
import { step, runSteps } from './maybe-sync.js'
import type { Steps } from './maybe-sync.js'
import { portionsOf } from './batch-size.js'
import type { Details, DetailsQuery, Group, Page, Query, Tx, Verdict } from './store.js'
import { sleep } from './runtime.js'
import type { QueueTally, TallyOptions } from './tally.js'

/** Where a call goes. In a synchronous transaction its results are available at once; see store/maybe-sync.ts. */
export interface Session {
  /** Whether it is in a transaction, of which nothing is durable yet. */
  readonly within: boolean
  commit(group: Group): Promise<Verdict>
  /** Several groups, each with a verdict of its own. */
  commitAll(groups: readonly Group[]): Promise<readonly Verdict[]>
  get(id: string): Promise<JobRecord | undefined>
  getAll(ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]>
  find(query: Query): Promise<Page<JobRecord>>
  details(query: DetailsQuery): Promise<Details>
  tally(queue?: string, options?: TallyOptions): Promise<readonly QueueTally[]>
  /** A group that changed this job was applied: counts that, once it is durable. `job` is as it was before. */
  changed(job: JobHeader, group: Group): void
}

/**
 * Returns a function that finds the session of a call: in the transaction given, or in the one that the calling code is
 * inside of, or with a batch.
 */
export function sessionFor(connection: Connection): (tx?: Tx) => Session {
  const { store } = connection
  const outside = batched(connection)
  const find = (tx?: Tx): Session => {
    const open = joinedTransaction(store, tx)
    if (tx !== undefined) {
      requireTransactions(store)
      return within(connection, tx, open)
    }
    if (open !== undefined) return within(connection, open.tx, open)
    const opening = openingTransaction(store)
    return opening === undefined ? outside : deferred(opening, find)
  }
  return find
}

function batched({ store, main, reads, series, ready }: Connection): Session {
  const whenOpen =
    <Given, T>(read: (given: Given) => Promise<T>) =>
    async (given: Given): Promise<T> => {
      await ready()
      return read(given)
    }
  return {
    within: false,
    commit: (group) => main.commit(group),
    commitAll: (groups) => Promise.all(groups.map((group) => main.commit(group))),
    get: whenOpen((id) => reads.get(id)),
    getAll: whenOpen((ids) => store.get(ids)),
    find: whenOpen((query) => store.find(query)),
    details: whenOpen((query) => reads.details(query)),
    tally: async (queue, options) => {
      await ready()
      return store.tally(listOf(queue), undefined, options)
    },
    changed: (job, group) => series.changed(job, group),
  }
}

/** The session of a call made while a transaction is being opened: each call waits for that, then finds its session. */
function deferred(opening: Promise<void>, then: () => Session): Session {
  const when = async <T>(call: (session: Session) => Promise<T>): Promise<T> => {
    await opening
    return call(then())
  }
  return {
    within: true,
    commit: (group) => when((session) => session.commit(group)),
    commitAll: (groups) => when((session) => session.commitAll(groups)),
    get: (id) => when((session) => session.get(id)),
    getAll: (ids) => when((session) => session.getAll(ids)),
    find: (query) => when((session) => session.find(query)),
    details: (query) => when((session) => session.details(query)),
    tally: (queue, options) => when((session) => session.tally(queue, options)),
    changed: (job, group) => then().changed(job, group),
  }
}

function within({ store, runtime, series, counting }: Connection, tx: Tx, open?: OpenTransaction): Session {
  /** Calls the store; the end of the transaction waits for the answer. */
  const callStore = <T>(call: () => Promise<T>): Promise<T> => {
    open?.refuseEnded()
    return open === undefined ? call() : open.during(call())
  }
  let now: Time = 0
  const sendAll = function* (groups: readonly Group[]): Steps<Verdict[]> {
    const verdicts: Verdict[] = []
    for (const portion of portionsOf(groups)) {
      const receipt = yield* step(callStore(() => commitWithin(store, tx, portion)))
      now = receipt.now
      verdicts.push(...receipt.groups)
    }
    return verdicts
  }
  /** Where the user ends the transaction, it is committed once a job that was added in it is seen outside of it. */
  const whenKnown = (report: () => void, evidence: Evidence): void =>
    open === undefined || open.endedByUser ? counting.afterCommit(report, evidence) : open.afterCommit(report)
  /** Where the user ends the transaction, it counts as committed. */
  const whenCommitted = (report: () => void): void => (open === undefined ? report() : open.afterCommit(report))
  const commitAll = function* (groups: readonly Group[]): Steps<readonly Verdict[]> {
    open?.refuseOwn(groups)
    // Otherwise the groups would become part of another call's savepoint.
    for (let nested = open?.busy; nested !== undefined; nested = open?.busy) yield* step(nested)
    const verdicts = yield* sendAll(groups)
    for (let tries = 1; ; tries++) {
      const busy = verdicts.flatMap((verdict, index) => (!verdict.ok && verdict.why === 'busy' ? [index] : []))
      if (busy.length === 0) {
        const added = series.applied(verdicts, now)
        if (added !== undefined) whenKnown(added.count, added.evidence)
        return verdicts
      }
      if (tries === BUSY_TRIES) refuseBusy(verdicts[busy[0]!]!)
      yield* step(sleep(runtime, BUSY_PAUSE))
      const again = yield* sendAll(busy.map((index) => groups[index]!))
      for (const [index, verdict] of again.entries()) verdicts[busy[index]!] = verdict
    }
  }
  const commit = function* (group: Group): Steps<Verdict> {
    return (yield* commitAll([group]))[0]!
  }
  const get = function* (id: string): Steps<JobRecord | undefined> {
    return (yield* step(callStore(() => store.get([id], tx))))[0]
  }
  return {
    within: true,
    commit: (group) => runSteps(commit(group)),
    commitAll: (groups) => runSteps(commitAll(groups)),
    get: (id) => runSteps(get(id)),
    getAll: (ids) => callStore(() => store.get(ids, tx)),
    find: (query) => callStore(() => store.find(query, tx)),
    details: (query) => callStore(() => store.details(query, tx)),
    tally: (queue, options) => callStore(() => store.tally(listOf(queue), tx, options)),
    changed: (job, group) => whenCommitted(() => series.changed(job, group)),
  }
}

/** How often, and how many milliseconds apart, a group is sent while another commit holds one of its rows for a moment. */
const BUSY_TRIES = 25
const BUSY_PAUSE = 20

/**
 * Throws for a row that an open transaction holds for longer: only the owner of this transaction can resolve that, by
 * ending it.
 */
function refuseBusy(verdict: Verdict): void {
  if (verdict.ok || verdict.why !== 'busy') return
  throw new MillraceError(
    'STORE_BUSY',
    `Job ${verdict.id} is held by another open transaction. Roll this one back and try again.`,
    { details: { id: verdict.id } },
  )
}

/** The queue requested; undefined: all. */
function listOf(queue: string | undefined): readonly string[] | undefined {
  return queue === undefined ? undefined : [queue]
}
