// test/stores/million.ts: fills the tables of a store with a million jobs of all kinds, in SQL, for query plans and benches.
import { Queue } from 'millrace'
import type { ListOptions } from 'millrace'
import type { Store } from '../../src/store/store.js'

/** The queue of these jobs. */
export const MILLION_QUEUE = 'million'

/** How many jobs there are. */
export const MILLION = 1_000_000

/** In what the SQL of two stores differs. */
interface Dialect {
  readonly table: (name: string) => string
  /** The numbers from 0 to below `count`, as `c(n)`. */
  readonly numbers: (count: number) => string
  /** Further columns of a tag, and their values. */
  readonly tagged: readonly [columns: string, values: string]
  /** What brings the counters in line with the jobs. */
  readonly counters: readonly string[]
}

const dialects: Readonly<Record<'sqlite' | 'postgres', Dialect>> = {
  sqlite: {
    table: (name) => `millrace_${name}`,
    numbers: (count) =>
      `(WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < ${count}) SELECT n FROM counted) c`,
    tagged: ['', ''],
    counters: [
      `INSERT INTO millrace_counter (kind, of, what, n) SELECT 'lane', lane, state, count(*) FROM millrace_job GROUP BY lane, state
         ON CONFLICT DO UPDATE SET n = excluded.n`,
    ],
  },
  postgres: {
    table: (name) => `millrace.${name}`,
    numbers: (count) => `generate_series(0::bigint, ${count - 1}) c(n)`,
    tagged: [', job', ', j.id'],
    counters: [
      `select setval('millrace.job_order', (select max(seq) + 1024 from millrace.job))`,
      `insert into millrace.writer (id, seq, at, receipt, counts) select 'million', 1, 0, '', jsonb_object_agg(y.key, y.n) from (
         select lane || ' ' || state as key, count(*) as n from millrace.job group by lane, state) y`,
    ],
  },
}

/** When the first of the jobs is added, and how far the others are apart: together they take ten days. */
export const FIRST_ADDED = 1_700_000_000_000
const APART = 864

const NAMES = 10
const worker = `':00000000-0000-4000-8000-000000000000'`
/** A number below 100 that is different from that of the job before. */
const dice = '(c.n * 37) % 100'
const state = `CASE WHEN c.n % 20000 = 0 THEN 'active' WHEN ${dice} < 45 THEN 'completed' WHEN ${dice} < 70 THEN 'waiting'
  WHEN ${dice} < 80 THEN 'failed' WHEN ${dice} < 90 THEN 'delayed' WHEN ${dice} < 97 THEN 'cancelled' ELSE 'waiting-children' END`
const created = `(${FIRST_ADDED} + c.n * ${APART})`
const started = `CASE WHEN c.state IN ('completed', 'failed', 'active') THEN ${created} + 1000 * (c.n % 60) END`

const columns: readonly (readonly [column: string, value: string])[] = [
  ['seq', '1024 * (c.n + 1000)'],
  ['id', `'job-' || substr(cast(10000000 + (c.n * 7919) % 1000003 AS text), 2)`], // in no order
  ['queue', 'q.id'],
  ['lane', 'l.id'],
  ['state', 'c.state'],
  ['priority', 'c.n % 3'],
  ['ord', 'c.n'],
  ['fence', '5'],
  ['attempt', '1'],
  ['attempts', '3'],
  ['created_at', created],
  ['started_at', started],
  [
    'finished_at',
    `CASE WHEN c.state IN ('completed', 'failed', 'cancelled') THEN ${created} + 1000 * (c.n % 60) + 100 END`,
  ],
  ['run_at', `CASE WHEN c.state = 'delayed' THEN 4000000000000 + c.n END`],
  ['due_at', `CASE WHEN c.state IN ('delayed', 'active') THEN 4000000000000 + c.n END`],
  ['lease_until', `CASE WHEN c.state = 'active' THEN 4000000000000 + c.n END`],
  ['pending', `CASE WHEN c.state = 'waiting-children' THEN 1 ELSE 0 END`],
  ['chain', `CASE WHEN c.n % 100 = 1 THEN 'chain' END`],
  ['chain_index', `CASE WHEN c.n % 100 = 1 THEN c.n ELSE 0 END`],
  ['parent', `CASE WHEN c.n % 100 = 2 THEN 'parent' END`],
  ['grp', `CASE WHEN c.n % 5 = 0 THEN CASE WHEN c.n % 10 = 0 THEN 'large' ELSE 'group ' || ((c.n / 5) % 1000) END END`],
  [
    'worker',
    `CASE WHEN c.state IN ('completed', 'failed', 'active') THEN CASE WHEN c.n % 50000 = 4 THEN 'rare' ELSE 'worker ' || (c.n % 50) END || ${worker} END`,
  ],
  ['touched', '(1 = 1)'],
  ['data', `'{"user":{"id":' || (c.n % 5000) || '},"n":' || c.n || '}'`],
  ['result', `CASE WHEN c.state = 'completed' THEN '{"ok":true}' END`],
  [
    'error',
    `CASE WHEN c.state = 'failed' THEN '{"name":"Error","message":"no","code":"' || CASE WHEN c.n % 10000 = 58 THEN 'RARE' ELSE 'C' || (c.n % 3) END || '","fingerprint":"f' || (c.n % 20) || '"}' END`,
  ],
]

/** Which jobs have which tag. */
const tags: readonly (readonly [tag: string, condition: string])[] = [
  ['common', 'j.ord % 2 = 0'],
  ['third', 'j.ord % 3 = 0'],
  ['rare', 'j.ord % 50000 = 0'],
]

/** Fills the tables of a new store, which is open, with so many jobs. `run` runs SQL on its database. */
export async function fillMillion(
  store: Store,
  kind: 'sqlite' | 'postgres',
  run: (sql: string) => unknown,
  count = MILLION,
): Promise<void> {
  const { table, numbers, tagged, counters } = dialects[kind]
  const queue = new Queue(MILLION_QUEUE, { store, series: false })
  const lanes = Array.from({ length: NAMES }, (_, n) => ({ name: `name ${n}`, data: {} }))
  await queue.addBulk([...lanes, ...lanes.map((lane) => ({ ...lane, options: { group: 'large' } }))])
  await queue.remove({ all: true })
  await queue.close()
  await run(`INSERT INTO ${table('job')} (${columns.map(([column]) => column).join(', ')})
    SELECT ${columns.map(([, value]) => value).join(', ')}
    FROM (SELECT c.n, ${state} AS state FROM ${numbers(count)}) c
    JOIN ${table('queue')} q ON q.name = '${MILLION_QUEUE}'
    JOIN ${table('lane')} l ON l.queue = q.id AND l.name = 'name ' || (c.n % ${NAMES}) AND l.shared = (c.n % 5 = 0)`)
  for (const [tag, condition] of tags) {
    await run(`INSERT INTO ${table('tag')} (queue, tag, seq${tagged[0]})
      SELECT j.queue, '${tag}', j.seq${tagged[1]} FROM ${table('job')} j WHERE ${condition}`)
  }
  for (const statement of counters) await run(statement)
}

const DAY = 86_400_000
const at = (days: number): number => FIRST_ADDED + days * DAY
const nowhere = { from: at(400) }

/** The filters that can be given, and combinations of several, with jobs that match anywhere in the list, and nowhere. */
export const millionFilters: readonly (readonly [what: string, filter: ListOptions & { search?: undefined }])[] = [
  ['nothing', {}],
  ['a state', { state: 'failed' }],
  ['several states', { state: ['waiting', 'completed', 'active'] }],
  ['what runs', { state: 'active' }],
  ['a name', { name: 'name 3' }],
  ['several names in a state', { name: ['name 3', 'name 4'], state: 'delayed' }],
  ['a chain', { chain: 'chain' }],
  ['a parent', { parent: 'parent' }],
  ['a parent in a state', { parent: 'parent', state: 'failed' }],
  ['a group', { group: 'large' }],
  ['a small group in a state', { group: 'group 7', state: 'completed' }],
  ['a tag', { tags: 'common' }],
  ['a rare tag', { tags: 'rare' }],
  ['several tags', { tags: ['common', 'third'] }],
  ['a common tag and a rare one', { tags: ['common', 'rare'] }],
  ['any of several tags', { tags: { any: ['common', 'third', 'rare'] } }],
  ['all of some tags and any of others', { tags: { all: ['common'], any: ['third', 'rare'] } }],
  ['a tag that no job has', { tags: 'nothing' }],
  ['a worker', { worker: 'worker 7' }],
  ['a worker of few jobs', { worker: 'rare' }],
  ['a worker of no job', { worker: 'nobody' }],
  ['a worker of what runs', { worker: 'worker 0', state: 'active' }],
  ['the beginning of many ids', { idPrefix: 'job-0' }],
  ['the beginning of few ids', { idPrefix: 'job-04242' }],
  ['the beginning of no id', { idPrefix: 'none' }],
  ['a time of adding', { created: { from: at(5), to: at(5.5) } }],
  ['a time of adding, until then', { created: { to: at(9) } }],
  ['a time at which nothing was added', { created: nowhere }],
  ['a time of starting', { started: { from: at(5), to: at(5.5) } }],
  ['a time of starting, from then on', { started: { from: at(9) } }],
  ['a time at which nothing started', { started: nowhere }],
  ['a time of finishing', { finished: { from: at(5), to: at(5.5) } }],
  ['a time at which nothing finished', { finished: nowhere }],
  ['the ends, the last one first', { order: 'finished' }],
  ['the ends in a time', { order: 'finished', finished: { from: at(5), to: at(5.5) } }],
  ['the ends of a group', { order: 'finished', group: 'group 7' }],
  ['a code', { error: { code: 'C1' } }],
  ['a rare code', { error: { code: 'RARE' } }],
  ['a fingerprint', { error: { fingerprint: 'f3' } }],
  ['a fingerprint and a code', { error: { fingerprint: 'f3', code: 'C1' } }],
  ['a code in a time of adding', { error: { code: 'C1' }, created: { from: at(5), to: at(6) } }],
  ['a tag in a time of finishing', { tags: 'common', finished: { from: at(5), to: at(6) } }],
  ['a tag, a name and a state', { tags: 'third', name: 'name 3', state: 'failed' }],
  ['a worker in a time of starting', { worker: 'worker 7', started: { from: at(5), to: at(6) }, state: 'completed' }],
  ['a group, a state and a time of adding', { group: 'large', state: 'waiting', created: { from: at(5), to: at(6) } }],
  ['a tag and a worker that never meet', { tags: 'common', worker: 'nobody' }],
  [
    'everything',
    {
      state: 'failed',
      name: 'name 8',
      tags: { all: ['common'], any: ['third', 'rare'] },
      worker: 'worker 8',
      idPrefix: 'job-0',
      created: { from: at(1), to: at(9) },
      started: { from: at(1) },
      finished: { to: at(9) },
      error: { code: 'C1' },
    },
  ],
]
