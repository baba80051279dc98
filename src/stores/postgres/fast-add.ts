// stores/postgres/fast-add.ts: encodes batches that only add plain jobs with equal settings, for `add_one` and its kind.
import type { NewJob } from '../../job/change.js'
import type { Batch, Group } from '../../store/store.js'
import { hasEqualSettings, settingsOf } from '../job-settings.js'
import type { Value } from './drivers/driver.js'
import type { LaneFinder } from './lanes.js'
import { UNIT } from './rows.js'
import type { IsOwnId } from './own-ids.js'

/** A call of one of the functions, without the writer and its number in front, and the time at the end. */
export interface AddCall {
  readonly name: 'add_one' | 'add_many' | 'add_shared'
  readonly values: readonly Value[]
}

/**
 * The call that adds all jobs of a batch; undefined if a fast path cannot. Ids that a user supplied are left to the
 * engine, because another process may be adding them, too.
 */
export function addCallFor(batch: Batch, lanes: LaneFinder, isOwnId: IsOwnId): AddCall | undefined {
  const jobs: NewJob[] = []
  const ids = new Set<string>()
  for (const group of batch.groups) {
    const job = plainJob(group)
    if (job === undefined || !isOwnId(job.id) || ids.has(job.id)) return undefined
    const [first = job] = jobs
    if (!hasEqualSettings(first, job) || (first.group === undefined) !== (job.group === undefined)) return undefined
    jobs.push(job)
    ids.add(job.id)
  }
  const [first] = jobs
  const ref = first && lanes(first)
  if (first === undefined || ref === undefined) return undefined
  const { queue, priority, lifo, group } = first
  const attempts = first.attempts === Infinity ? null : first.attempts
  const joined = (value: (job: NewJob) => string | undefined): string => jobs.map((job) => value(job) ?? '').join(UNIT)
  const head = [ref.queue, ref.lane, queue, priority]
  if (group !== undefined) {
    const lists = [joined(({ id }) => id), joined(({ data }) => data), joined((job) => job.group)]
    return { name: 'add_shared', values: [...head, attempts, settingsOf(first), ...lists] }
  }
  const lists =
    jobs.length === 1 ? [first.id, first.data ?? null] : [joined(({ id }) => id), joined(({ data }) => data)]
  const name = jobs.length === 1 ? 'add_one' : 'add_many'
  return { name, values: [...head, String(lifo), attempts, settingsOf(first), ...lists] }
}

/** The job of a group that inserts one job that waits: no time, edges, parent, chain or dedup key. */
function plainJob(group: Group): NewJob | undefined {
  const [change] = group
  if (group.length !== 1 || change?.kind !== 'insert') return undefined
  const { job, edges } = change
  const isPlain =
    edges.length === 0 &&
    job.kind === 'job' &&
    job.state === 'waiting' &&
    job.run === undefined &&
    job.expires === undefined &&
    job.dedup === undefined &&
    job.parentId === undefined &&
    job.chainId === job.id &&
    job.chainIndex === 0 &&
    job.extras?.tags === undefined
  return isPlain ? job : undefined
}
