// stores/postgres/engine/working-groups.ts: the backlogs of queues and groups in a working set, and the turns of groups.
import { isClaimable } from '../../../job/job.js'
import type { JobRecord, JobState } from '../../../job/job.js'
import { isBacklog } from '../../../job/limits.js'
import type { Journal, WorkingRow } from './working-rows.js'
import type { WorkingSet } from './working-set.js'

/** Joins the parts of a key; no name contains the separator. */
export const keyOf = (...parts: readonly (string | number)[]): string => parts.join('\u001F')

/** The sizes of backlogs, with the changes of the batch. Only those that a limit mentions are loaded. */
export class Backlogs {
  readonly #journal: Journal
  readonly #sizes: ReadonlyMap<string, number>
  readonly #oldest: ReadonlyMap<string, readonly string[]>
  readonly #changes = new Map<string, number>()

  constructor({ backlogs, groupBacklogs }: WorkingSet['fixed'], journal: Journal) {
    this.#journal = journal
    this.#sizes = new Map([
      ...backlogs,
      ...groupBacklogs.map(([queue, group, jobs]) => [keyOf(queue, group), jobs] as const),
    ])
    this.#oldest = new Map(groupBacklogs.map(([queue, group, , oldest]) => [keyOf(queue, group), oldest]))
  }

  /** The size of a backlog: of a queue, or of a group in it. */
  of(queue: string, group?: string): number {
    const key = group === undefined ? queue : keyOf(queue, group)
    return (this.#sizes.get(key) ?? 0) + (this.#changes.get(key) ?? 0)
  }

  /** The id of the oldest loaded job of a group that is still in its backlog. */
  oldest(queue: string, group: string, rows: ReadonlyMap<string, WorkingRow>): string | undefined {
    return this.#oldest.get(keyOf(queue, group))?.find((id) => {
      const row = rows.get(id)
      return row === undefined || (!row.removed && isBacklog(row.job.state))
    })
  }

  /** Counts a job that is new (`from` undefined), is removed (`to` undefined), or goes from one state to another. */
  count({ kind, queue, group }: JobRecord, from: JobState | undefined, to: JobState | undefined): void {
    const change = Number(isBacklog(to)) - Number(isBacklog(from))
    if (change === 0 || kind !== 'job') return
    for (const key of group === undefined ? [queue] : [queue, keyOf(queue, group)]) {
      this.#journal.put(this.#changes, key, (this.#changes.get(key) ?? 0) + change)
    }
  }
}

/** The turn that a queue has reached in a priority, and the turn of the last job of a group that waits in it. */
export function lastTurn(
  turns: WorkingSet['extra']['turns'],
  { queue, group, priority }: { readonly queue: string; readonly group: string; readonly priority: number },
  rows: ReadonlyMap<string, WorkingRow>,
  all: readonly WorkingRow[],
): { readonly reached: number; readonly last: number | undefined } {
  const known = turns.find(([ofQueue, name, level]) => ofQueue === queue && name === group && level === priority)
  const stillWaits = (id: string): boolean => {
    const row = rows.get(id)
    return row === undefined || (!row.removed && isClaimable(row.job.state) && row.job.priority === priority)
  }
  let last = known?.[4].find(([id]) => stillWaits(id))?.[1]
  for (const { job, removed, loaded } of all) {
    if (removed || job === loaded || job.group !== group || job.queue !== queue || job.priority !== priority) continue
    if (isClaimable(job.state) && (last === undefined || job.ord > last)) last = job.ord
  }
  return { reached: known?.[3] ?? 0, last }
}
