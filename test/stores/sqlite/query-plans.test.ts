// What every claim, settlement and look at the clock costs does not grow with the file: it is read from an index.
import { expect, test } from 'vitest'
import { systemRuntime } from '../../../src/store/runtime.js'
import { openDatabase } from '../../../src/stores/sqlite/file/open.js'
import { schema } from '../../../src/stores/sqlite/schema.js'
import { countTagged, filteredList, jobFrom, seqsByPrefix } from '../../../src/stores/sqlite/filter-sql.js'
import type { ListSource } from '../../../src/stores/sqlite/filter-sql.js'
import { listing, sql } from '../../../src/stores/sqlite/statement-texts.js'
import type { Listing } from '../../../src/stores/sqlite/statement-texts.js'

const db = await openDatabase(':memory:', { schema }, systemRuntime())

/** What SQLite does for a statement, one line for each step. */
function planOf(text: string): readonly string[] {
  const parameters = new Set(text.match(/\?\d+/g)).size || (text.match(/\?/g) ?? []).length
  const values = Array.from({ length: parameters }, () => null)
  return db
    .prepare(`EXPLAIN QUERY PLAN ${text}`)
    .all(...values)
    .map((row) => String(row[3]))
}

/** Tables that are small whatever happens, or that the statement is there to go through; a subquery is bounded by its limit. */
const small =
  /millrace_(queue|peer|writer|counter|lane)\b|json_each|CONSTANT ROW|VALUES CLAUSE|^SCAN v\b|^SCAN \(?subquery|^SCAN ((lanes|groups)$|[cg] VIRTUAL)/

function slow(text: string): readonly string[] {
  return planOf(text).filter(
    (step) => (step.startsWith('SCAN') && !small.test(step)) || step.startsWith('USE TEMP B-TREE'),
  )
}

const sorting = new Set(['leasesIn', 'tallyOf', 'groupOrphans', 'openEdgesOnAll']) // by the few names of a queue, or of a batch; orphans are few
const scanning = new Set(['anyOpenEdge', 'anyOrphan', 'anyWindow']) // ends at the first row

test.each(Object.entries(sql))('%s reads no more than it answers', (name, text) => {
  if (/^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA)/.test(text)) return
  if (sorting.has(name) || scanning.has(name)) return
  expect(slow(text)).toEqual([])
})

test('no statement answers two columns of one name, which some drivers would lose', () => {
  for (const text of Object.values(sql)) {
    if (!text.startsWith('SELECT')) continue
    const { columns } = db.prepare(text) as unknown as { columns?(): readonly { readonly name: string }[] }
    const names = columns?.call(db.prepare(text)).map(({ name }) => name) ?? []
    expect(new Set(names).size).toBe(names.length)
  }
})

test.each(['oldest', 'newest'] as const)('active jobs are found by their leases, %s first', (order) => {
  expect(planOf(listing({ by: 'active', order }))[0]).toMatch(/^SEARCH j USING INDEX millrace_job_leased/)
})

test('a claim reads the head of its lane, in order, from one index', () => {
  const [first] = planOf(sql.laneHead)
  expect(first).toMatch(/^SEARCH j USING INDEX millrace_job_ready \(lane=\? AND /)
})

test.each([
  ['nextOfLane', /^SEARCH millrace_job USING INDEX millrace_job_ready \(lane=\?\)/],
  ['firstOfLane', /^SEARCH millrace_job USING INDEX millrace_job_list \(lane=\? AND state=\?\)/],
  ['runningIn', /^SEARCH millrace_job USING INDEX millrace_job_leased \(queue=\?\)/],
  ['dueIn', /^SEARCH millrace_job USING INDEX millrace_job_due \(queue=\? AND due_at>\? AND due_at<\?\)/],
  ['leaseIn', /^SEARCH millrace_job USING (COVERING )?INDEX millrace_job_leased \(queue=\?\)/],
] as const)('the head of an index is read in its order: %s', (name, expected) => {
  expect(planOf(sql[name])).toEqual([expect.stringMatching(expected)])
})

test('jobs with a group are read by turn, and those of one group by themselves, each from an index in order', () => {
  expect(planOf(sql.sharedHead)[0]).toMatch(/^SEARCH j USING INDEX millrace_job_ready \(lane=\? AND \(priority,ord/)
  expect(planOf(sql.groupHead)[0]).toMatch(
    /^SEARCH j USING INDEX millrace_job_turn \(queue=\? AND grp=\? AND lane=\? AND /,
  )
})

test('groups with jobs waiting are found one from the other, and their heads, whatever lies between', () => {
  const searches = planOf(sql.groupHeads).filter((step) => step.includes('millrace_job_turn'))
  // Plans of older versions of SQLite do not show that the row's number is compared, too.
  const read = searches.map((step) => /\((.*)\)$/.exec(step)?.[1]?.replace(',rowid)>(?,?,?)', ')>(?,?)'))
  expect(read).toEqual([
    'queue=? AND grp>?',
    'queue=? AND grp>?',
    'queue=? AND grp=? AND lane=? AND (priority,ord)>(?,?)',
  ])
})

test.each(
  (['delayed', 'waiting-children', 'active', 'completed', 'failed', 'cancelled'] as const).flatMap((by) =>
    (['oldest', 'newest'] as const).map((order): Listing => ({ by: `group ${by}`, order })),
  ),
)('a page of jobs by $by, $order first, is read from an index in order', (asked) => {
  const plan = planOf(listing(asked))
  expect(plan[0]).toMatch(
    /^SEARCH j USING INDEX millrace_job_group(_leased|_rare)? \(queue=\? AND grp=\? AND .*rowid[<>]\?\)/,
  )
  expect(plan.filter((step) => step.startsWith('USE TEMP B-TREE'))).toEqual([])
})

test('all jobs of a group are read from an index in order, and those that wait are read alone', () => {
  const plans = (['group', 'group waiting'] as const).map((by) => planOf(listing({ by, order: 'newest' })))
  expect(plans[0]![0]).toMatch(/^SEARCH j USING INDEX millrace_job_group \(queue=\? AND grp=\? AND rowid<\?\)/)
  expect(plans[0]!.filter((step) => step.startsWith('USE TEMP B-TREE'))).toEqual([])
  expect(plans[1]![0]).toMatch(/^SEARCH j USING (COVERING )?INDEX millrace_job_turn \(queue=\? AND grp=\?\)/)
})

test('a job without a group is in none of the indexes of groups', () => {
  const texts = db.prepare(`SELECT sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '%grp%'`).all()
  expect(texts.length).toBe(4)
  for (const [text] of texts) expect(text).toMatch(/WHERE grp IS NOT NULL( AND |$)/)
})

test.each(
  (
    [
      'waiting',
      'delayed',
      'waiting-children',
      'completed',
      'failed',
      'cancelled',
      'schedule',
      'chain',
      'parent',
    ] as const
  ).flatMap((by) => (['oldest', 'newest'] as const).map((order): Listing => ({ by, order }))),
)('a page of jobs by $by, $order first, is read from an index in order', (asked) => {
  const plan = planOf(listing(asked))
  expect(plan[0]).toMatch(/^SEARCH j USING (COVERING )?INDEX millrace_job_(list|schedule|chain|parent)/)
  expect(plan.filter((step) => step.startsWith('USE TEMP B-TREE'))).toEqual([])
})

test('a page of a name in a state is read from the list of its lane, and nothing else is looked at', () => {
  const [first] = planOf(listing({ by: 'failed', order: 'newest' }))
  expect(first).toMatch(/^SEARCH j USING INDEX millrace_job_list \(lane=\? AND state=\? AND rowid<\?\)/)
})

const all = { from: 0, to: Number.MAX_SAFE_INTEGER }

test.each<readonly [ListSource, string]>([
  [{ by: 'tag', queue: 1, of: 'a' }, 't USING (COVERING INDEX|PRIMARY KEY).*queue=\\? AND tag=\\? AND seq[<>]\\?'],
  [{ by: 'fingerprint', queue: 1, of: 'a' }, 'j USING INDEX millrace_job_fingerprint \\(queue=\\? AND <expr>=\\? AND '],
  [{ by: 'code', queue: 1, of: 'a' }, 'j USING INDEX millrace_job_code \\(queue=\\? AND <expr>=\\? AND '],
  [{ by: 'group', queue: 1, of: 'a' }, 'j USING INDEX millrace_job_group \\(queue=\\? AND grp=\\? AND '],
  [{ by: 'lane', lane: 1, state: 'completed' }, 'j USING INDEX millrace_job_list \\(lane=\\? AND state=\\? AND '],
  [{ by: 'parent', of: 'a' }, 'j USING INDEX millrace_job_parent \\(parent=\\? AND '],
])('a filtered page by %j is read from an index in order', (source, expected) => {
  for (const order of ['oldest', 'newest'] as const) {
    const plan = planOf(filteredList(source, { tags: ['a', 'b'], worker: 'w', names: ['n'], order }, all).text)
    expect(plan[0]).toMatch(new RegExp(`^SEARCH ${expected}`))
    expect(plan.filter((step) => step.startsWith('USE TEMP B-TREE') || /^SCAN [jt]\b/.test(step))).toEqual([])
  }
})

test('jobs that failed or were cancelled are read from an index in the order of their ends', () => {
  const plan = planOf(
    filteredList({ by: 'ended', queue: 1 }, { order: 'finished', finished: { from: 1, to: 5 } }, all).text,
  )
  expect(plan[0]).toMatch(/^SEARCH j USING INDEX millrace_job_ended \(queue=\? AND /)
  expect(plan.filter((step) => step.startsWith('USE TEMP B-TREE'))).toEqual([])
})

test('what filters count and look up is read from indexes', () => {
  for (const text of [seqsByPrefix, countTagged, jobFrom]) expect(slow(text)).toEqual([])
  expect(planOf(seqsByPrefix)[0]).toMatch(
    /^SEARCH millrace_job USING COVERING INDEX millrace_job_id \(id>\? AND id<\?\)/,
  )
})

test('a job that goes well and has no tags is in none of the indexes of filters', () => {
  const texts = db.prepare(
    `SELECT sql FROM sqlite_master WHERE name IN ('millrace_job_fingerprint', 'millrace_job_code')`,
  )
  for (const [text] of texts.all()) expect(text).toMatch(/WHERE error IS NOT NULL AND state <> 'completed'$/)
  const ended = db.prepare(`SELECT sql FROM sqlite_master WHERE name = 'millrace_job_ended'`).get()!
  expect(ended[0]).toMatch(/WHERE state IN \('failed', 'cancelled'\)$/)
})
