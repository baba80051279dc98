// stores/postgres/engine/writes.ts: encodes what a workspace has collected, as `write` and `commit` read it.
import { isClaimable } from '../../../job/job.js'
import type { JobRecord, Time } from '../../../job/job.js'
import { tagsOf } from '../../../job/values/tags.js'
import type { Notices } from '../../../engine/notices.js'
import type { Group, Refused, Verdict } from '../../../store/store.js'
import { settingsOf } from '../../job-settings.js'
import { INSERTED_DEFAULTS, insertedColumns, movedColumns } from '../functions/job-columns.js'
import type { InsertedColumn } from '../functions/job-columns.js'
import { ROW } from '../rows.js'
import type { WorkingEdge, WorkingRow } from './working-rows.js'
import type { PostgresWorkspace } from './workspace.js'

/** Columns of a table by name. `undefined` is null. */
type Columns = Record<string, unknown>

const time = (at: Time | undefined): number | undefined => (at === undefined ? undefined : Math.floor(at))
const json = (value: object | undefined): string | undefined =>
  value === undefined ? undefined : JSON.stringify(value)

/** The value of each column of a job. `undefined` is null. */
const columnValues: { readonly [Name in InsertedColumn]: (row: WorkingRow) => unknown } = {
  id: ({ job }) => job.id,
  seq: ({ seq }) => seq,
  queue: ({ queue }) => queue,
  lane: ({ lane }) => lane,
  kind: ({ job }) => job.kind,
  state: ({ job }) => job.state,
  priority: ({ job }) => job.priority,
  ord: ({ job }) => job.ord,
  fence: ({ job }) => job.fence,
  attempt: ({ job }) => job.attempt,
  attempts: ({ job }) => (job.attempts === Infinity ? undefined : job.attempts),
  chain: ({ job }) => (job.chainId === job.id ? undefined : job.chainId),
  chain_index: ({ job }) => job.chainIndex,
  parent: ({ job }) => job.parentId,
  pending: ({ job }) => job.pending,
  stalls: ({ job }) => job.stalls,
  stale: ({ job }) => job.stale,
  ahead: ({ job }) => job.ahead,
  touched: (row) => !isPlain(row),
  created_at: ({ job }) => job.createdAt,
  run_at: ({ job }) => time(job.runAt),
  due_at: ({ job }) => time(job.dueAt),
  lease_until: ({ job }) => time(job.leaseUntil),
  started_at: ({ job }) => time(job.startedAt),
  finished_at: ({ job }) => time(job.finishedAt),
  broken_at: ({ job }) => time(job.brokenAt),
  stale_at: ({ job }) => time(job.staleAt),
  delete_at: ({ job }) => time(job.deleteAt),
  worker: ({ job }) => job.worker,
  grp: ({ job }) => job.group,
  settings: ({ job }) => settingsOf(job),
  dedup: ({ job }) => json(job.dedup),
  data: ({ job }) => job.data,
  memo: ({ job }) => job.memo,
  progress: ({ job }) => job.progress,
  result: ({ job }) => job.result,
  error: ({ job }) => json(job.error),
  expires_at: ({ job }) => time(job.expiresAt),
  history: ({ job }) => job.history,
  errors: ({ job }) => (job.errors.length === 0 ? undefined : job.errors.map((each) => JSON.stringify(each))),
}

/** Whether the short row of a claim says all of a new job, once it is claimed. */
function isPlain({ job, changed }: WorkingRow): boolean {
  const isAlone = job.chainId === job.id && job.chainIndex === 0 && job.pending === 0 && job.expiresAt === undefined
  return isAlone && !changed && (job.memo ?? job.progress) === undefined
}

const inserted = Object.keys(insertedColumns) as readonly InsertedColumn[]

/**
 * The columns of rows that differ from the defaults; what is equal in all rows stands in `alike`, once. Of a row alone,
 * nothing does.
 */
function valuesOf(
  rows: readonly WorkingRow[],
  columns: readonly InsertedColumn[],
  defaults: { readonly [Name in InsertedColumn]?: unknown },
): { readonly alike: Columns; readonly values: readonly Columns[] } {
  const alike: Columns = {}
  const values = rows.map((): Columns => ({}))
  const each = rows.map((): unknown => undefined)
  // By index: this runs for each column of each row of a batch, and an iterator would cost more than the value.
  for (const name of columns) {
    const valueOf = columnValues[name]
    let isAlike = rows.length > 1
    for (let at = 0; at < rows.length; at++) {
      each[at] = valueOf(rows[at]!)
      if (each[at] !== each[0]) isAlike = false
    }
    if (isAlike) {
      if (each[0] !== undefined && each[0] !== defaults[name]) alike[name] = each[0]
      continue
    }
    for (let at = 0; at < rows.length; at++) {
      const value = each[at]
      if (value !== undefined && value !== null && value !== defaults[name]) values[at]![name] = value
    }
  }
  return { alike, values }
}

/** The rows of the tags of a job. */
function tagRows({ job, seq, queue }: WorkingRow): readonly Columns[] {
  return tagsOf(job).map((tag) => ({ queue, tag, seq, job: job.id }))
}

/** What `write` writes; lists that are empty are left out. */
export function writesOf(workspace: PostgresWorkspace): object {
  const loaded = workspace.loaded.filter(({ removed }) => !removed)
  const added = workspace.inserts.filter(({ removed }) => !removed)
  const kept = [...loaded, ...added]
  const moved = loaded.filter(({ changed }) => changed)
  const insertedRows = valuesOf(added, inserted, INSERTED_DEFAULTS)
  const movedRows = valuesOf(moved, movedColumns, {})
  const isKept = ({ row }: { readonly row: WorkingRow | undefined }): boolean => row?.removed !== true
  const lists: Record<string, readonly unknown[]> = {
    removed: workspace.loaded.filter(({ removed }) => removed).map(({ job }) => job.id),
    untagged: workspace.loaded.filter(({ removed }) => removed).flatMap(tagRows),
    tagged: added.flatMap(tagRows),
    inserted: insertedRows.values,
    changed: moved.map(({ job, payload }, at) => ({ id: job.id, ...movedRows.values[at], ...payload })),
    renewed: loaded
      .filter(({ changed, renewed }) => renewed && !changed)
      .map(({ job }) => ({ id: job.id, lease_until: time(job.leaseUntil), ahead: job.ahead })),
    noted: loaded
      .filter(({ changed, payload }) => !changed && Object.keys(payload).length > 0)
      .map(({ job, payload }) => ({ id: job.id, payload })),
    logs: kept.filter(({ logs }) => logs.length > 0).map(({ job, logs }) => ({ job: job.id, lines: logs })),
    steps: kept
      .filter(({ steps }) => steps.size > 0)
      .map(({ job, steps }) => ({ job: job.id, results: [...steps].map(([name, step]) => [name, ...step]) })),
    closed: [...workspace.edges.closed],
    edges: endedEdges(workspace.edges.all.filter((edge) => edge.changed && !edge.isNew && isKept(edge))),
    newEdges: workspace.edges.all
      .filter((edge) => edge.isNew && isKept(edge))
      .map(({ dependent, position, chain, policy, state, name, result, error }) => {
        return { dependent, position, chain, policy, state, name, result, error: json(error) }
      }),
    freed: [...workspace.keysFreed].map(([pair, key]) => ({ key, job: pair.slice(key.length + 1) })),
    taken: [...workspace.keysTaken].map(([key, { job, until }]) => ({ key, job, until: time(until) })),
    orphansEnded: [...workspace.orphansEnded.values()].map(([id, fence]) => ({ id, fence })),
    orphans: [...workspace.orphansAdded.values()].map(([id, fence, { lane, job }, until, worker]) => {
      return { id, fence, lane, worker, until: time(until), grp: job.group }
    }),
    cellsDropped: [...workspace.cellsPut].filter(([, cell]) => cell === undefined).map(([key]) => key),
    cells: [...workspace.cellsPut.values()].filter((cell) => cell !== undefined),
  }
  const writes: Record<string, unknown> = {}
  for (const [name, list] of Object.entries(lists)) if (list.length > 0) writes[name] = list
  if (Object.keys(insertedRows.alike).length > 0) writes.insertedAlike = insertedRows.alike
  if (Object.keys(movedRows.alike).length > 0) writes.changedAlike = movedRows.alike
  if (workspace.removedFence > 0) writes.fence = workspace.removedFence
  return writes
}

/** Edges by the end of their chain: a result that many dependents wait for is written once. */
function endedEdges(edges: readonly WorkingEdge[]): readonly object[] {
  const ends = new Map<string, { readonly dependents: (readonly [id: string, position: number])[] }>()
  for (const { chain, state, result, error, dependent, position } of edges) {
    const key = `${state} ${chain}`
    let end = ends.get(key)
    if (end === undefined) {
      const fields = { state, result, error: json(error), dependents: [] }
      ends.set(key, (end = fields))
    }
    end.dependents.push([dependent, position])
  }
  return [...ends.values()]
}

/** The changes of counters: of the jobs in a lane by state, and of what has happened in a queue. */
export function countsOf(workspace: PostgresWorkspace): readonly (readonly [of: number, what: string, n: number])[] {
  const counts = new Map<string, [of: number, what: string, n: number]>()
  const add = (of: number, what: string, n: number): void => {
    const key = `${of} ${what}`
    const known = counts.get(key)
    if (known === undefined) counts.set(key, [of, what, n])
    else known[2] += n
  }
  const addState = ({ lane }: WorkingRow, { kind, state }: JobRecord, n: number): void =>
    add(lane, kind === 'job' ? state : 'schedule', n)
  for (const row of workspace.loaded) {
    if (!row.removed && row.job.state === row.loaded!.state) continue
    addState(row, row.loaded!, -1)
    if (!row.removed) addState(row, row.job, 1)
  }
  for (const row of workspace.inserts) if (!row.removed) addState(row, row.job, 1)
  for (const [queue, what, n] of workspace.lifetime.values()) add(queue, `+${what}`, n)
  return [...counts.values()].filter(([, , n]) => n !== 0)
}

/** Where jobs were placed in their lanes, the first of each lane: lane, priority, order. */
export function placedIn(
  workspace: PostgresWorkspace,
  shared: readonly (readonly [lane: number, priority: number, ord: number])[],
): readonly (readonly [lane: number, priority: number, ord: number])[] {
  const first = new Map<number, readonly [number, number, number]>()
  const place = (lane: number, priority: number, ord: number): void => {
    const known = first.get(lane)
    if (known === undefined || isBefore(priority, ord, known[1], known[2])) first.set(lane, [lane, priority, ord])
  }
  for (const { lane, job, loaded, removed } of [...workspace.loaded, ...workspace.inserts]) {
    if (removed || job.kind !== 'job' || !isClaimable(job.state)) continue
    const waited = loaded !== undefined && isClaimable(loaded.state)
    if (waited && !isBefore(job.priority, job.ord, loaded.priority, loaded.ord)) continue
    place(lane, job.priority, job.ord)
  }
  for (const [lane, priority, ord] of shared) place(lane, priority, ord)
  return [...first.values()]
}

function isBefore(priority: number, ord: number, otherPriority: number, otherOrd: number): boolean {
  return priority < otherPriority || (priority === otherPriority && ord < otherOrd)
}

/** The events and hints of a batch, as `commit` takes them. */
export function noticesOf({ events, work, due, revoked, held }: Notices): object {
  return {
    ...(events.length > 0 && {
      events: events.length,
      body: events.map((event) => JSON.stringify({ ...event, cursor: undefined })).join(ROW),
    }),
    ...(work.size > 0 && { work: [...work] }),
    ...(due.size > 0 && { due: [...due].map(([queue, at]) => ({ queue, at: Math.floor(at) })) }),
    ...(revoked.length > 0 && { revoked }),
    ...(held.length > 0 && { held }),
  }
}

/** The verdicts as `decode.ts` reads them from a stored receipt: without data of jobs. */
export function receiptTexts(
  groups: readonly Group[],
  verdicts: { readonly groups: readonly Verdict[]; readonly renewals: readonly Verdict[] },
  workspace: PostgresWorkspace,
): { readonly groups: string; readonly renewals: string } {
  const single = new Map<number, { readonly indexes: number[]; readonly ords: number[] }>()
  const others: unknown[] = []
  for (const [n, verdict] of verdicts.groups.entries()) {
    if (!verdict.ok) {
      others.push(['x', n, verdict.why, verdict.id, standing(verdict), verdict.change])
      continue
    }
    const { inserted } = verdict
    if (inserted.length === 0) continue
    const group = groups[n]!
    const [change] = group
    if (group.length === 1 && change?.kind === 'insert' && change.edges.length === 0) {
      const [{ ord, fence }] = inserted as [JobRecord]
      const same = single.get(fence) ?? { indexes: [], ords: [] }
      single.set(fence, same)
      same.indexes.push(n)
      same.ords.push(ord)
    } else if (inserted.length < group.length) others.push(['R', n, inserted.map(({ id }) => id)])
    else {
      const jobs = inserted.map(({ id, ord, fence }) => {
        return [
          ord,
          fence,
          workspace.edges
            .firstStates(id)
            .map((state) => state[0])
            .join(''),
        ]
      })
      others.push(['g', n, jobs])
    }
  }
  const runs = [...single].map(([fence, { indexes, ords }]) => ['i', indexes, ords, fence])
  const renewals = verdicts.renewals.flatMap((verdict, n) =>
    verdict.ok ? [] : [[n, verdict.why, verdict.id, verdict.job === undefined ? null : 1]],
  )
  return { groups: textOf([...runs, ...others]), renewals: textOf(renewals) }
}

/** What a replay reads again for a refused group: the job of its id, another job, or nothing. */
function standing(verdict: Refused): unknown {
  if (verdict.why === 'version') return verdict.cell ?? null
  if (verdict.job === undefined) return null
  return verdict.job.id === verdict.id ? 1 : verdict.job.id
}

/** The entries of a list as JSON, without its brackets. */
function textOf(list: readonly unknown[]): string {
  return JSON.stringify(list).slice(1, -1)
}
