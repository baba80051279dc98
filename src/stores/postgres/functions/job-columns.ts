// stores/postgres/functions/job-columns.ts: the columns of `job` that are read as a record, and those that a commit writes: one
// list each.
//
// To add a column: add it to the table in schema.ts; to `recordColumns` at its end, and to `recordOf` in rows.ts; to
// `insertedColumns`, and to `movedColumns` if a move may change it, and its value to `columnValues` in engine/writes.ts. The
// SQL follows from these lists. The fast paths write and read plain jobs alone: have fast-add.ts of the store leave a job with a value in
// the new column to the engine, and mark it as `touched`, so that a claim reads its whole record.

/** The columns of a record in their order, each with its SQL: `j` is the row, `l` its lane. New ones go to the end. */
export const recordColumns = {
  id: 'j.id',
  lane: 'j.lane',
  queue: 'l.queue',
  name: 'l.name',
  version: 'l.version',
  kind: 'j.kind',
  state: 'j.state',
  priority: 'j.priority',
  ord: 'j.ord',
  fence: 'j.fence',
  attempt: 'j.attempt',
  attempts: 'j.attempts',
  worker: 'j.worker',
  run_at: 'j.run_at',
  lease_until: 'j.lease_until',
  broken_at: 'j.broken_at',
  stale_at: 'j.stale_at',
  stale: 'j.stale',
  delete_at: 'j.delete_at',
  due_at: 'j.due_at',
  chain: 'j.chain',
  chain_index: 'j.chain_index',
  parent: 'j.parent',
  pending: 'j.pending',
  stalls: 'j.stalls',
  ahead: 'j.ahead',
  data: 'j.data',
  settings: 'j.settings',
  dedup: 'j.dedup',
  progress: 'j.progress',
  result: 'j.result',
  error: 'j.error',
  errors: 'array_to_json(j.errors)',
  created_at: 'j.created_at',
  started_at: 'j.started_at',
  finished_at: 'j.finished_at',
  seq: 'j.seq',
  grp: 'j.grp',
  memo: 'j.memo',
  expires_at: 'j.expires_at',
  history: 'j.history',
} as const

/** The name of a column of a record. */
export type RecordColumn = keyof typeof recordColumns

/**
 * What a working set has in place of some columns: the id of the queue; no names, which its lane has; no payload. The
 * error is only needed for events, and for the reason of a cancellation.
 */
const inWorkingSet: Partial<Record<RecordColumn, string>> = {
  queue: 'j.queue',
  name: 'null',
  version: 'null',
  data: 'null',
  progress: 'null',
  result: 'null',
  error: "case when recording or j.state = 'cancelled' then j.error end",
  errors: 'null',
  memo: 'null',
}

/** The columns of a new job, with their types. */
export const insertedColumns = {
  id: 'text',
  seq: 'bigint',
  queue: 'int',
  lane: 'int',
  kind: 'text',
  state: 'text',
  priority: 'bigint',
  ord: 'bigint',
  fence: 'bigint',
  attempt: 'int',
  attempts: 'bigint',
  chain: 'text',
  chain_index: 'int',
  parent: 'text',
  pending: 'int',
  stalls: 'int',
  stale: 'boolean',
  ahead: 'boolean',
  touched: 'boolean',
  created_at: 'bigint',
  run_at: 'bigint',
  due_at: 'bigint',
  lease_until: 'bigint',
  started_at: 'bigint',
  finished_at: 'bigint',
  broken_at: 'bigint',
  stale_at: 'bigint',
  delete_at: 'bigint',
  worker: 'text',
  grp: 'text',
  settings: 'text',
  dedup: 'text',
  data: 'text',
  memo: 'text',
  progress: 'text',
  result: 'text',
  error: 'text',
  errors: 'text[]',
  expires_at: 'bigint',
  history: 'text',
} as const

/** The values of most new jobs, which are not sent. */
export const INSERTED_DEFAULTS: { readonly [Name in InsertedColumn]?: unknown } = {
  kind: 'job',
  priority: 0,
  attempt: 0,
  chain_index: 0,
  pending: 0,
  stalls: 0,
  stale: false,
  ahead: false,
  touched: false,
}

/** The columns of a new job. */
export type InsertedColumn = keyof typeof insertedColumns

/** The columns that a move may change, besides the payload. */
export const movedColumns = [
  'state',
  'priority',
  'ord',
  'fence',
  'attempt',
  'worker',
  'run_at',
  'lease_until',
  'broken_at',
  'stale_at',
  'stale',
  'delete_at',
  'due_at',
  'pending',
  'stalls',
  'ahead',
  'finished_at',
  'expires_at',
  'history',
] as const satisfies readonly InsertedColumn[]

/** Order numbers from here on, and below the negative of this, are counted from a number that the server chooses. */
export const UNPLACED = 2 ** 52

/** The value of a column in the row `x` of what is to be written. */
function given(name: InsertedColumn): string {
  return name === 'seq' || name === 'ord' ? `place_{V}(x.${name}, base)` : `x.${name}`
}

/** SQL: the columns of a record. */
export const RECORD = Object.values(recordColumns).join(', ')
/** SQL: the same of a row in a working set. */
export const WORKING_RECORD = Object.entries(recordColumns)
  .map(([name, sql]) => inWorkingSet[name as RecordColumn] ?? sql)
  .join(', ')
/** SQL: the columns of an insert, and the same of the new rows `x`. */
export const INSERTED = Object.keys(insertedColumns).join(', ')
export const INSERTED_VALUES = Object.keys(insertedColumns)
  .map((name) => given(name as InsertedColumn))
  .join(', ')
/** SQL: assigns what a move changes, from the rows `x`. */
export const MOVED_ASSIGNMENTS = movedColumns.map((name) => `${name} = ${given(name)}`).join(', ')
