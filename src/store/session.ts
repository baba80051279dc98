// store/session.ts: the way that a call takes to the store: with the next batch, or within a transaction.
import { MillraceError } from '../job/errors.js'
import type { JobRecord } from '../job/job.js'
import { commitWithin, joinedTransaction, openingTransaction, refuseWithout } from './transaction-context.js'
import type { OpenTransaction } from './transaction-context.js'
import type { Connection } from './connection.js'
import { step, stepwise } from './maybe-sync.js'
import type { Steps } from './maybe-sync.js'
import { portionsOf } from './batch-size.js'
import type { Details, DetailsQuery, Group, Page, Query, QueueTally, Tx, Verdict } from './store.js'

/** A way to the store. Within a synchronous transaction its answers are there at once; see store/maybe-sync.ts. */
export interface Session {
  /** Whether it leads into a transaction, of which nothing is durable yet. */
  readonly within: boolean
  commit(group: Group): Promise<Verdict>
  /** Several groups, each with a verdict of its own. */
  commitAll(groups: readonly Group[]): Promise<readonly Verdict[]>
  get(id: string): Promise<JobRecord | undefined>
  getAll(ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]>
  find(query: Query): Promise<Page<JobRecord>>
  details(query: DetailsQuery): Promise<Details>
  tally(queue?: string): Promise<readonly QueueTally[]>
}

/** Finds the way for a call: into the transaction given, or the one that the calling code is inside of, or with a batch. */
export function sessionFor(connection: Connection): (tx?: Tx) => Session {
  const { store } = connection
  const outside = batched(connection)
  const find = (tx?: Tx): Session => {
    const open = joinedTransaction(store, tx)
    if (tx !== undefined) {
      refuseWithout(store)
      return within(connection, tx, open)
    }
    if (open !== undefined) return within(connection, open.tx, open)
    const opening = openingTransaction(store)
    return opening === undefined ? outside : afterwards(opening, find)
  }
  return find
}

function batched({ store, main, reads, ready }: Connection): Session {
  return {
    within: false,
    commit: (group) => main.commit(group),
    commitAll: (groups) => Promise.all(groups.map((group) => main.commit(group))),
    get: async (id) => {
      await ready()
      return reads.get(id)
    },
    getAll: async (ids) => {
      await ready()
      return store.get(ids)
    },
    find: async (query) => {
      await ready()
      return store.find(query)
    },
    details: async (query) => {
      await ready()
      return reads.details(query)
    },
    tally: async (queue) => {
      await ready()
      return store.tally(some(queue))
    },
  }
}

/** The way that there will be. */
function afterwards(opening: Promise<void>, then: () => Session): Session {
  const when = async <T>(call: (way: Session) => Promise<T>): Promise<T> => {
    await opening
    return call(then())
  }
  return {
    within: true,
    commit: (group) => when((way) => way.commit(group)),
    commitAll: (groups) => when((way) => way.commitAll(groups)),
    get: (id) => when((way) => way.get(id)),
    getAll: (ids) => when((way) => way.getAll(ids)),
    find: (query) => when((way) => way.find(query)),
    details: (query) => when((way) => way.details(query)),
    tally: (queue) => when((way) => way.tally(queue)),
  }
}

function within({ store, runtime }: Connection, tx: Tx, open?: OpenTransaction): Session {
  /** Asks the store; whoever ends the transaction waits for the answer. */
  const ask = <T>(call: () => Promise<T>): Promise<T> => {
    open?.refuseEnded()
    return open === undefined ? call() : open.during(call())
  }
  const sendAll = function* (groups: readonly Group[]): Steps<Verdict[]> {
    const verdicts: Verdict[] = []
    for (const portion of portionsOf(groups)) {
      verdicts.push(...(yield* step(ask(() => commitWithin(store, tx, portion)))).groups)
    }
    return verdicts
  }
  const commitAll = function* (groups: readonly Group[]): Steps<readonly Verdict[]> {
    open?.refuseOwn(groups)
    // Or it would belong to a savepoint of somebody else.
    for (let nested = open?.busy; nested !== undefined; nested = open?.busy) yield* step(nested)
    const verdicts = yield* sendAll(groups)
    for (let tries = 1; ; tries++) {
      const busy = verdicts.flatMap((verdict, at) => (!verdict.ok && verdict.why === 'busy' ? [at] : []))
      if (busy.length === 0) return verdicts
      if (tries === BUSY_TRIES) refuseBusy(verdicts[busy[0]!]!)
      yield* step(new Promise<void>((resolve) => void runtime.timer(BUSY_PAUSE, resolve)))
      const again = yield* sendAll(busy.map((at) => groups[at]!))
      for (const [at, verdict] of again.entries()) verdicts[busy[at]!] = verdict
    }
  }
  const commit = function* (group: Group): Steps<Verdict> {
    return (yield* commitAll([group]))[0]!
  }
  const get = function* (id: string): Steps<JobRecord | undefined> {
    return (yield* step(ask(() => store.get([id], tx))))[0]
  }
  return {
    within: true,
    commit: (group) => stepwise(commit(group)),
    commitAll: (groups) => stepwise(commitAll(groups)),
    get: (id) => stepwise(get(id)),
    getAll: (ids) => ask(() => store.get(ids, tx)),
    find: (query) => ask(() => store.find(query, tx)),
    details: (query) => ask(() => store.details(query, tx)),
    tally: (queue) => ask(() => store.tally(some(queue), tx)),
  }
}

/** How often, and how long apart, a group is sent that meets a row which somebody else's commit holds for a moment. */
const BUSY_TRIES = 25
const BUSY_PAUSE = 20

/** It is held for longer than a moment, by an open transaction: only the owner of this one can go on, by ending it. */
function refuseBusy(verdict: Verdict): void {
  if (verdict.ok || verdict.why !== 'busy') return
  throw new MillraceError(
    'STORE_BUSY',
    `Job ${verdict.id} is held by another open transaction. Roll this one back and try again.`,
    { details: { id: verdict.id } },
  )
}

/** The queue asked for; undefined: all. */
function some(queue: string | undefined): readonly string[] | undefined {
  return queue === undefined ? undefined : [queue]
}
