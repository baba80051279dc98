// upkeep/siblings.ts: cancels jobs that are not needed any more, before their parent is handled.
import { isFinished, unfinishedStates } from '../job/job.js'
import type { Edge, JobHeader } from '../job/job.js'
import { chainsToCancel } from '../job/dependencies.js'
import { cancel, isDenied } from '../job/lifecycle.js'
import { headerOf } from '../job/record.js'
import type { Connection } from '../store/connection.js'
import { runSteps } from '../store/maybe-sync.js'
import { pages } from '../store/read-pages.js'
import type { Query, Store } from '../store/store.js'
import { recordsOf } from './due-records.js'

/** The most jobs cancelled for one parent at a time, because others are due as well. */
const PORTION = 200

/**
 * Cancels some of the unfinished jobs behind edges whose job fails together with all of them (`cancelSiblings`), their
 * own children first. Returns how many. The parent stays due until there are none left, even after a crash in between.
 */
export async function cancelUnneeded({ store, main }: Connection, edges: readonly Edge[]): Promise<number> {
  const chains = chainsToCancel(edges).slice(0, PORTION)
  if (chains.length === 0) return 0
  const heads = new Map<string, JobHeader>()
  for await (const records of recordsOf(store, chains)) for (const each of records) heads.set(each.id, headerOf(each))
  const found: JobHeader[] = []
  for (const chain of chains) {
    const head = heads.get(chain)
    const jobs = head !== undefined && !isFinished(head.state) ? [head] : (await unfinishedOf(store, { chain })).jobs
    for (const job of jobs) await withChildren(store, job, found)
  }
  const groups = found.map((job) => cancel(job)).filter((group) => !isDenied(group))
  const verdicts = await Promise.all(
    groups.map((group) => main.tryCommit(group as Exclude<typeof group, { denied: string }>)),
  )
  return verdicts.filter(({ ok }) => ok).length
}

/** Appends a job after all of its unfinished children, and theirs; returns whether all of them fit. */
async function withChildren(store: Store, job: JobHeader, into: JobHeader[]): Promise<boolean> {
  if (into.length >= PORTION) return false
  if (job.state === 'waiting-children') {
    const children = await unfinishedOf(store, { parent: job.id })
    let { whole } = children
    for (const child of children.jobs) whole = (await withChildren(store, child, into)) && whole
    if (!whole) return false // it is left for the next time
  }
  into.push(job)
  return true
}

/** Unfinished jobs of a chain or a parent, at least a portion of them, and whether those are all. */
async function unfinishedOf(
  store: Store,
  of: Pick<Query, 'chain' | 'parent'>,
): Promise<{ readonly jobs: readonly JobHeader[]; readonly whole: boolean }> {
  const jobs: JobHeader[] = []
  for (const page of pages(store, { ...of, states: unfinishedStates, limit: PORTION })) {
    if (jobs.length >= PORTION) return { jobs, whole: false }
    jobs.push(...(await runSteps(page)).map(headerOf))
  }
  return { jobs, whole: true }
}
