// queue/flows/chain-ends.ts: the last job of a chain says what the chain came to, so it does not go before those ahead of it.
import { MillraceError } from '../../job/errors.js'
import type { JobHeader, JobRecord } from '../../job/job.js'
import { headerOf } from '../../job/record.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Page } from '../../store/store.js'
import type { Session } from '../../store/session.js'

type Look = Pick<Session, 'find'>

/** Jobs of a chain read at a time. */
const PORTION = 500

/** Whether a job is the last of a chain of which others stand. One that began its chain has none before it. */
export function* endsChain(way: Look, { id, chainId, chainIndex }: JobHeader): Steps<boolean> {
  if (chainIndex === 0) return false
  const [last] = (yield* step(way.find({ chain: chainId, order: 'newest', limit: 1 }))).items
  if (last?.id !== id) return false
  const [first] = (yield* step(way.find({ chain: chainId, limit: 1 }))).items
  return first?.id !== id
}

/** Refuses to remove the last job of a chain alone: what came before it would be taken for the end. */
export function* refuseChainEnd(way: Look, record: JobRecord): Steps<void> {
  if (!(yield* endsChain(way, record))) return
  const { id, chainId } = record
  throw new MillraceError(
    'JOB_ENDS_CHAIN',
    `Job ${id} cannot be removed alone: it is the last of chain ${chainId}, which would then seem to have ended with the job before. Remove the chain: queue.chain('${chainId}').remove().`,
    { details: { id, chain: chainId } },
  )
}

/** Those of some jobs that can be removed together: the last of a chain only with all that is left of it. */
export function* notChainEnds(way: Look, records: readonly JobRecord[]): Steps<readonly JobRecord[]> {
  const among = new Set(records.map(({ id }) => id))
  const staying = new Set<string>()
  for (const chain of new Set(records.filter(({ chainIndex }) => chainIndex > 0).map(({ chainId }) => chainId))) {
    const last = yield* endWithout(way, chain, among)
    if (last !== undefined) staying.add(last)
  }
  return staying.size === 0 ? records : records.filter(({ id }) => !staying.has(id))
}

/** The last job of a chain, if it is among some jobs and another of its chain is not. */
function* endWithout(way: Look, chain: string, among: ReadonlySet<string>): Steps<string | undefined> {
  let last: string | undefined
  let cursor: string | undefined
  do {
    const from = cursor === undefined ? {} : { cursor }
    const page: Page<JobRecord> = yield* step(way.find({ chain, order: 'newest', limit: PORTION, ...from }))
    last ??= page.items[0]?.id
    if (last === undefined || !among.has(last)) return undefined
    if (page.items.some(({ id }) => !among.has(id))) return last
    cursor = page.cursor
  } while (cursor !== undefined)
  return undefined
}

/** Some jobs, and before each those that are ahead of it in its chain; without their payloads, for chains may be long. */
export function* withChains(way: Look, records: readonly JobRecord[]): Steps<readonly JobHeader[]> {
  const all = new Map<string, JobHeader>()
  for (const record of records) {
    for (let cursor: string | undefined, more = record.chainIndex > 0; more; more = cursor !== undefined) {
      const from = cursor === undefined ? {} : { cursor }
      const page: Page<JobRecord> = yield* step(way.find({ chain: record.chainId, limit: PORTION, ...from }))
      for (const each of page.items) if (each.chainIndex < record.chainIndex) all.set(each.id, headerOf(each))
      cursor = page.cursor
    }
    all.set(record.id, headerOf(record))
  }
  return [...all.values()]
}
