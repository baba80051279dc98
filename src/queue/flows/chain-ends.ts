// queue/flows/chain-ends.ts: keeps the last job of a chain, which holds the chain's outcome, until the rest is gone.
import { MillraceError } from '../../job/errors/errors.js'
import type { JobHeader, JobRecord } from '../../job/job.js'
import { isContinuation } from '../../job/moves.js'
import { headerOf } from '../../job/record.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { pages } from '../../store/read-pages.js'
import type { Session } from '../../store/session.js'

type Reader = Pick<Session, 'find'>

/** Whether a job is the last of a chain that has other jobs left. */
export function* endsChain(session: Reader, job: JobHeader): Steps<boolean> {
  if (!isContinuation(job)) return false
  const { id, chainId } = job
  const [last] = (yield* step(session.find({ chain: chainId, order: 'newest', limit: 1 }))).items
  if (last?.id !== id) return false
  const [first] = (yield* step(session.find({ chain: chainId, limit: 1 }))).items
  return first?.id !== id
}

/** Throws if the last job of a chain would be removed alone: the job before it would then count as the chain's end. */
export function* refuseChainEnd(session: Reader, record: JobRecord): Steps<void> {
  if (yield* endsChain(session, record)) throw chainEnd(record)
}

/** The error for the last job of a chain that has other jobs left. */
export function chainEnd({ id, chainId }: JobRecord): MillraceError {
  return new MillraceError(
    'JOB_ENDS_CHAIN',
    `Job ${id} cannot be removed alone: it is the last of chain ${chainId}, which would then seem to have ended with the job before. Remove the chain: queue.chain('${chainId}').remove().`,
    { details: { id, chain: chainId } },
  )
}

/** The jobs that can be removed together: the last job of a chain only with all that is left of the chain. */
export function* withoutChainEnds(session: Reader, records: readonly JobRecord[]): Steps<readonly JobRecord[]> {
  const selected = new Set(records.map(({ id }) => id))
  const kept = new Set<string>()
  for (const chain of new Set(records.filter(isContinuation).map(({ chainId }) => chainId))) {
    const last = yield* lastOfPartialChain(session, chain, selected)
    if (last !== undefined) kept.add(last)
  }
  return kept.size === 0 ? records : records.filter(({ id }) => !kept.has(id))
}

/** The last job of a chain, if it is among these ids and another job of its chain is not. */
function* lastOfPartialChain(session: Reader, chain: string, selected: ReadonlySet<string>): Steps<string | undefined> {
  let last: string | undefined
  for (const page of pages(session, { chain, order: 'newest' })) {
    const jobs = yield* page
    last ??= jobs[0]?.id
    if (last === undefined || !selected.has(last)) return undefined
    if (jobs.some(({ id }) => !selected.has(id))) return last
  }
  return undefined
}

/** These jobs, each preceded by the earlier jobs of its chain; without payloads, because chains may be long. */
export function* withEarlierJobs(session: Reader, records: readonly JobRecord[]): Steps<readonly JobHeader[]> {
  const all = new Map<string, JobHeader>()
  for (const record of records) {
    for (const page of isContinuation(record) ? pages(session, { chain: record.chainId }) : []) {
      for (const each of yield* page) if (each.chainIndex < record.chainIndex) all.set(each.id, headerOf(each))
    }
    all.set(record.id, headerOf(record))
  }
  return [...all.values()]
}
