// stores/sqlite/filter-sql.ts: the SQL of filtered queries: the lists that hold all matches, and the condition on each row.
import type { JobState } from '../../job/job.js'
import { endStates } from '../../store/read-pages.js'
import type { Query, TimeRange } from '../../store/store.js'
import type { Value } from './file/driver.js'

/** A list of rows in order, from one index. Its first parameters are the position to start after and a number of rows. */
export interface FilteredList {
  readonly text: string
  /** The values from the third parameter on. */
  readonly values: readonly Value[]
}

/** The lists that are read from an index of their own, or of a lane in a state. */
export type ListSource =
  | { readonly by: 'ended' | 'active'; readonly queue: number }
  | { readonly by: 'group'; readonly queue: number; readonly of: string }
  | { readonly by: 'tag' | 'fingerprint' | 'code'; readonly queue: number; readonly of: string }
  | { readonly by: 'lane'; readonly lane: number; readonly state: string }
  | { readonly by: 'chain' | 'first' | 'parent'; readonly of: string }
  | { readonly by: 'ids'; readonly of: string }

/** The list of a lane in a state, or of the active jobs of a queue. */
export function laneSource(state: JobState, of: number): ListSource {
  return state === 'active' ? { by: state, queue: of } : { by: 'lane', lane: of, state }
}

/** What text of the failing jobs an index holds. */
const errorText = { fingerprint: `json_extract(j.error, '$.fingerprint')`, code: `json_extract(j.error, '$.code')` }

const FAILING = `j.error IS NOT NULL AND j.state <> 'completed'`

/** A text followed by this comes after every id that begins with the text: an id has at most 127 such characters. */
const AFTER_PREFIX = '\u{10FFFF}'.repeat(128)

/** A list of a query: rows after ?1 in its order, at most ?2 of them; each with its number and whether it matches. */
export function filteredList(
  source: ListSource,
  query: Query,
  seqs: Readonly<{ from: number; to: number }>,
): FilteredList {
  const values: Value[] = []
  const bind = (value: Value): string => `?${values.push(value) + 2}`
  const { from, where } = sourceOf(source, bind)
  const matches = conditions(query, bind).join(' AND ') || '1'
  if (source.by === 'ended') {
    const range = rangeOf('j.finished_at', query.finished, bind)
    const text = `SELECT j.finished_at, j.seq, ${matches} AS fits FROM ${from} WHERE ${[where, ...range].join(' AND ')}
      AND (j.finished_at, j.seq) < (?1, ${bind(null)}) ORDER BY j.finished_at DESC, j.seq DESC LIMIT ?2`
    return { text, values }
  }
  const [bound, direction] =
    query.order === 'newest'
      ? [`j.seq < ?1 AND j.seq >= ${bind(seqs.from)}`, 'DESC']
      : [`j.seq > ?1 AND j.seq < ${bind(seqs.to)}`, 'ASC']
  const text = `SELECT j.seq, ${matches} AS fits FROM ${from} WHERE ${where} AND ${bound.replaceAll('j.seq', seqOf(source))}
    ORDER BY ${seqOf(source)} ${direction} LIMIT ?2`
  return { text, values }
}

const seqOf = ({ by }: ListSource): string => (by === 'tag' ? 't.seq' : 'j.seq')

function sourceOf(
  source: ListSource,
  bind: (value: Value) => string,
): { readonly from: string; readonly where: string } {
  const job = 'millrace_job j'
  switch (source.by) {
    case 'ended': {
      const states = endStates.map((state) => `'${state}'`).join(', ')
      const from = `${job} INDEXED BY millrace_job_ended`
      return { from, where: `j.state IN (${states}) AND j.queue = ${bind(source.queue)}` }
    }
    case 'tag': {
      const where = `t.queue = ${bind(source.queue)} AND t.tag = ${bind(source.of)}`
      return { from: `millrace_tag t CROSS JOIN ${job} ON j.seq = t.seq`, where }
    }
    case 'fingerprint':
    case 'code': {
      const where = `${FAILING} AND j.queue = ${bind(source.queue)} AND ${errorText[source.by]} = ${bind(source.of)}`
      return { from: `${job} INDEXED BY millrace_job_${source.by}`, where }
    }
    case 'ids':
      return { from: job, where: `j.seq IN (SELECT value FROM json_each(${bind(source.of)}))` }
    case 'lane': {
      const where = `j.lane = ${bind(source.lane)} AND j.state = '${source.state}' AND j.state <> 'active'`
      return { from: `${job} INDEXED BY millrace_job_list`, where }
    }
    case 'active':
      return { from: job, where: `j.queue = ${bind(source.queue)} AND j.state = 'active'` } // few, and found by their leases
    case 'group': {
      const where = `j.grp IS NOT NULL AND j.queue = ${bind(source.queue)} AND j.grp = ${bind(source.of)}`
      return { from: `${job} INDEXED BY millrace_job_group`, where }
    }
    case 'chain':
      return { from: job, where: `j.chain = ${bind(source.of)}` }
    case 'first':
      return { from: job, where: `j.id = ${bind(source.of)} AND j.chain IS NULL` }
    case 'parent':
      return { from: job, where: `j.parent = ${bind(source.of)}` }
  }
}

/** The conditions of a query on a row of `j`. */
function conditions(query: Query, bind: (value: Value) => string): readonly string[] {
  const oneOf = (list: readonly string[]): string => `(SELECT value FROM json_each(${bind(JSON.stringify(list))}))`
  const hasTag = (tag: string): string =>
    `EXISTS (SELECT 1 FROM millrace_tag o WHERE o.queue = j.queue AND o.tag = ${bind(tag)} AND o.seq = j.seq)`
  const found: string[] = []
  const { queue, states, names, chain, parent, group, kind, tags, anyTag, worker, idPrefix } = query
  if (queue !== undefined) found.push(`j.queue = (SELECT id FROM millrace_queue WHERE name = ${bind(queue)})`)
  if (states !== undefined) found.push(`j.state IN ${oneOf(states)}`)
  if (names !== undefined) found.push(`(SELECT l.name FROM millrace_lane l WHERE l.id = j.lane) IN ${oneOf(names)}`)
  if (chain !== undefined) found.push(`coalesce(j.chain, j.id) = ${bind(chain)}`)
  if (parent !== undefined) found.push(`j.parent IS ${bind(parent)}`)
  if (group !== undefined) found.push(`j.grp IS ${bind(group)}`)
  if (kind !== undefined) found.push(`j.kind = ${bind(kind)}`)
  if (query.order === 'finished') found.push(`j.state IN ${oneOf(endStates)}`)
  for (const tag of tags ?? []) found.push(hasTag(tag))
  if (anyTag !== undefined) found.push(`(${anyTag.map(hasTag).join(' OR ')})`)
  if (worker !== undefined) {
    const of = bind(worker)
    found.push(`(j.worker IS ${of} OR (substr(j.worker, 1, length(j.worker) - 36) IS ${of} || ':'))`)
  }
  if (idPrefix !== undefined) found.push(`(j.id >= ${bind(idPrefix)} AND j.id < ${bind(idPrefix + AFTER_PREFIX)})`)
  found.push(...rangeOf('j.created_at', query.created, bind))
  found.push(...rangeOf('j.started_at', query.started, bind), ...rangeOf('j.finished_at', query.finished, bind))
  if (query.errorCode !== undefined) found.push(`(${FAILING} AND ${errorText.code} IS ${bind(query.errorCode)})`)
  if (query.fingerprint !== undefined) {
    found.push(`(${FAILING} AND ${errorText.fingerprint} IS ${bind(query.fingerprint)})`)
  }
  // Never null: a row matches or does not.
  return found.map((condition) => `coalesce(${condition}, 0)`)
}

function rangeOf(column: string, range: TimeRange | undefined, bind: (value: Value) => string): readonly string[] {
  if (range === undefined) return []
  const bounds = [`${column} IS NOT NULL`]
  if (range.from !== undefined) bounds.push(`${column} >= ${bind(range.from)}`)
  if (range.to !== undefined) bounds.push(`${column} < ${bind(range.to)}`)
  return bounds
}

/** The numbers of the jobs whose ids begin with a text, at most so many. */
export const seqsByPrefix = `SELECT seq FROM millrace_job WHERE id >= ?1 AND id < ?2 LIMIT ?3`

/** The values of `seqsByPrefix`. */
export function prefixValues(prefix: string, limit: number): readonly Value[] {
  return [prefix, prefix + AFTER_PREFIX, limit]
}

/** How many jobs have a tag, at most so many. */
export const countTagged = `SELECT count(*) FROM (SELECT 1 FROM millrace_tag WHERE queue = ?1 AND tag = ?2 LIMIT ?3)`

/** The first job from a number on, and the last job. */
export const jobFrom = `SELECT seq, created_at FROM millrace_job WHERE seq >= ? ORDER BY seq LIMIT 1`
export const lastJob = `SELECT seq FROM millrace_job ORDER BY seq DESC LIMIT 1`
