// On a table that was just filled and never analysed, no statement reads more of it than it asked for.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { postgres } from 'millrace/postgres'
import { Driver, LEASE, ask, renewal } from '../../../src/conformance/driver.js'
import {
  cancel,
  complete,
  fail,
  insert,
  note,
  promote,
  put,
  remove,
  retry,
  failAndRetry,
} from '../../../src/conformance/changes.js'
import { DEPENDENTS_LISTED } from '../../../src/store/store.js'
import type { Store } from '../../../src/store/store.js'
import { HEADS_READ } from '../../../src/store/tally.js'
import { explainedPool } from './plans.js'
import type { ExplainedPool } from './plans.js'
import { newDatabase } from './server/shared.js'
import { rows, run } from './server/clients.js'

/** Jobs of each kind, in each of four lanes; far more than anybody asks for below. */
const EACH = 700
/** The most that a statement may read or sort below: pages of 20 from the heads of some twenty lists. */
const MOST = 500

let store: Store
let explained: ExplainedPool
let d: Driver
let database: string

beforeAll(async () => {
  const url = (database = await newDatabase())
  const first = postgres(url)
  const setting = new Driver(first, 'setting')
  for (const queue of ['one', 'two']) {
    for (const name of ['a', 'b']) await setting.add(name, { queue, run: { in: 10 ** 9 } })
  }
  await setting.limit({ concurrency: 1000, names: { a: { concurrency: 500 } } }, 'two')
  await first.close()
  // Their own numbers are random.
  const lanes = '(select *, row_number() over (order by queue, name) as rank from millrace.lane)'
  await run(
    url,
    `alter table millrace.job set (autovacuum_enabled = off);
     insert into millrace.job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, run_at, due_at, lease_until,
                               worker, data, touched, chain, chain_index, parent, pending, finished_at)
     select l.rank || ' ' || s.state || ' ' || n, nextval('millrace.job_order'), l.queue, l.id, s.state, n % 3, currval('millrace.job_order'), 5, 3, 1,
       case s.state when 'delayed' then 1 + n end,
       case s.state when 'delayed' then 1 + n when 'active' then 4e12 end,
       case s.state when 'active' then 4e12 end, case s.state when 'active' then 'somebody' end, '{}', true,
       case when s.state = 'completed' then 'chain' end, case when s.state = 'completed' then n else 0 end,
       case when s.state = 'completed' then 'parent' end, case s.state when 'waiting-children' then 1 else 0 end, 1
     from ${lanes} l, unnest(array['waiting', 'delayed', 'waiting-children', 'active', 'completed', 'failed', 'cancelled']) s(state),
       generate_series(1, case s.state when 'active' then 10 else ${EACH} end) n;
     insert into millrace.edge select j.id, 1, l.rank || ' active ' || 1 + n % 10, 'fail', 'open'
       from ${lanes} l, generate_series(1, ${EACH}) n, lateral (select l.rank || ' waiting-children ' || n as id) j;
     insert into millrace.key select 'key ' || n, 'nobody', case when n % 2 = 0 then 5e12 end from generate_series(1, 5000) n;`,
  )
  explained = explainedPool(url)
  store = postgres(explained.pool)
  await store.open()
  d = new Driver(store, 'writer')
  const [table] = await rows<{ analysed: boolean; jobs: string }>(
    url,
    `select c.reltuples <> -1 as analysed, (select count(*) from millrace.job) as jobs from pg_class c where c.oid = 'millrace.job'::regclass`,
  )
  expect(Number(table!.jobs)).toBeGreaterThan(16_000)
  expect(table!.analysed).toBe(false)
})

afterAll(async () => {
  await store.close()
  await explained.pool.end()
})

/** What a call did that it should not, in words; it must have run something on jobs. */
async function misdeeds(call: () => Promise<unknown>, most = MOST): Promise<readonly string[]> {
  const { found, onJobs } = await explained.misdeeds(call, most)
  expect(onJobs).toBeGreaterThan(0)
  return found
}

/** A job as it stands, by where it was put. */
const standing = async (lane: number, state: string, n: number) => d.job(`${lane} ${state} ${n}`)

const pages: readonly (readonly [string, Parameters<Store['find']>[0]])[] = [
  ['all', {}],
  ['a queue', { queue: 'one' }],
  ['a queue, newest first', { queue: 'one', order: 'newest' }],
  ['a state', { queue: 'one', states: ['failed'] }],
  ['several states', { states: ['waiting', 'active', 'cancelled'] }],
  ['a name', { queue: 'two', names: ['b'] }],
  ['a name, newest first', { queue: 'two', names: ['b'], order: 'newest' }],
  ['a name in a state', { queue: 'two', names: ['b'], states: ['completed'] }],
  ['a name in a state, newest first', { queue: 'two', names: ['b'], states: ['failed'], order: 'newest' }],
  ['a name in several states', { queue: 'two', names: ['b'], states: ['waiting', 'completed'] }],
  ['a name of which there is nothing', { queue: 'two', names: ['nobody'] }],
  ['what runs', { queue: 'two', states: ['active'] }],
  ['a chain', { chain: 'chain' }],
  ['a chain, newest first', { chain: 'chain', order: 'newest' }],
  ['a parent', { parent: 'parent' }],
  ['a parent in a state', { parent: 'parent', states: ['completed'] }],
  [
    'what keeping the last N may remove',
    { queue: 'two', names: ['b'], states: ['completed'], kind: 'job', order: 'oldest' },
  ],
  ['what an operation changes', { queue: 'two', states: ['failed', 'cancelled'], kind: 'job', bytes: 2 ** 21 }],
  ['schedules', { kind: 'schedule' }],
  ['jobs that are no schedules', { kind: 'job', queue: 'one', states: ['delayed'] }],
]

test.each(pages)('finding %s reads a page, and the next one too', async (_what, query) => {
  const limit = 20
  let cursor: string | undefined
  const first = await misdeeds(async () => ({ cursor } = await store.find({ ...query, limit })), 700)
  expect(first).toEqual([])
  const at = cursor === undefined ? {} : { cursor }
  expect(await misdeeds(() => store.find({ ...query, ...at, limit }), 700)).toEqual([])
})

test('what is due is read in order', async () => {
  const due = { queues: ['one', 'two'], except: ['1 delayed 3', 'nobody'], limit: 20 }
  expect(await misdeeds(() => store.due(due))).toEqual([])
  expect((await store.due(due)).jobs).toHaveLength(20)
})

test('heads are read from the indexes, whatever stands behind them', async () => {
  const asked = ['one']
  expect(await misdeeds(() => store.tally(asked, undefined, { heads: true }), HEADS_READ)).toEqual([])
  const [one] = await store.tally(asked, undefined, { heads: true })
  expect(Object.keys(one!.heads!.waiting)).toEqual(['a', 'b'])
  expect(one!.heads).toMatchObject({ delayed: 2, overdue: 2 })
})

test('jobs are read by their ids, and what lies beside them', async () => {
  const ids = Array.from({ length: 20 }, (_, n) => `1 failed ${n + 1}`)
  expect(await misdeeds(() => store.get(ids))).toEqual([])
  expect(await misdeeds(() => store.details({ jobs: ['1 waiting-children 5', '1 active 3'] }))).toEqual([])
})

test('jobs are claimed from the heads of lanes', async () => {
  const claim = (queues: readonly string[], names: readonly string[]) => () =>
    d.commit({ asks: [ask(10, { queues, names, ahead: 10 })] })
  expect(await misdeeds(claim(['one'], ['a']))).toEqual([]) // one lane
  expect(await misdeeds(claim(['one'], ['a', 'b']))).toEqual([])
  expect(await misdeeds(claim(['one', 'two'], ['a', 'b']))).toEqual([]) // with limits in one of them
  await d.pause({ names: ['a'] }, 'one')
  expect(await misdeeds(claim(['one'], ['a', 'b']))).toEqual([])
})

test('jobs are added, plainly and with all there is', async () => {
  const plain = Array.from({ length: 20 }, () => [insert(d.id(), 'a', { queue: 'one' })])
  expect(await misdeeds(() => d.commit({ groups: plain }))).toEqual([])
  const special = [
    [insert(d.id(), 'a', { queue: 'one', dedup: { key: 'key 1' } })],
    [insert(d.id(), 'a', { queue: 'one', dedup: { key: 'fresh', window: 1000 } })],
    [insert(d.id(), 'a', { queue: 'one', after: ['1 active 3', '1 failed 3'] })],
    [insert(d.id(), 'a', { queue: 'one', run: { in: 1000 }, parent: 'parent' })],
    [insert('1 failed 7', 'a', { queue: 'one' })],
  ]
  expect(await misdeeds(() => d.commit({ groups: special }))).toEqual([])
})

test('jobs are settled, one by one and many at once', async () => {
  const running = await d.claim(20, { queues: ['two'], names: ['b'] })
  expect(running).toHaveLength(20)
  expect(
    await misdeeds(() => d.commit({ groups: running.slice(0, 10).map((job) => complete(job, { result: 1 })) })),
  ).toEqual([])
  const rest = running.slice(10)
  const groups = [
    fail(rest[0]!),
    failAndRetry(rest[1]!, 1000),
    cancel(rest[2]!),
    remove(rest[3]!),
    note(rest[4]!, { progress: 5, logs: ['half'] }),
    complete(rest[5]!, {
      also: [insert(d.id(), 'b', { queue: 'two' })],
      continuation: insert(d.id(), 'b', { queue: 'two' }),
    }),
  ]
  expect(
    await misdeeds(() => d.commit({ groups, renewals: rest.slice(6).map((job) => renewal(job, LEASE, true)) })),
  ).toEqual([])
})

test('many jobs are settled, moved, removed and noted at once', async () => {
  const options = { queue: 'two', keep: { failed: { deleteAfter: 0 } } }
  const groups = Array.from({ length: 60 }, (_, n) => [
    insert(d.id(), 'c', { ...options, dedup: { key: `many ${n}` } }),
  ])
  expect(await misdeeds(() => d.commit({ groups }))).toEqual([])
  const running = await d.claim(60, { queues: ['two'], names: ['c'] })
  expect(running).toHaveLength(60)
  const notes = running.map((job) => note(job, { progress: 5, logs: ['half'] }))
  expect(await misdeeds(() => d.commit({ groups: notes }))).toEqual([])
  const settled = running.map((job, n) =>
    n % 3 === 0 ? failAndRetry(job, 1000) : n % 3 === 1 ? fail(job) : complete(job),
  )
  expect(await misdeeds(() => d.commit({ groups: settled }))).toEqual([])
  const waiting = await store.find({ queue: 'one', states: ['waiting'], limit: 40 })
  const moved = waiting.items.map((job, n) => (n < 20 ? cancel(job) : remove(job)))
  expect(await misdeeds(() => d.commit({ groups: moved }))).toEqual([])
})

test('of very many dependents of one chain, a bounded number is read', async () => {
  const chain = '2 waiting 5'
  await run(
    database,
    `insert into millrace.edge select j.id, 100 + n, '${chain}', 'fail', 'open'
       from generate_series(1, 30) n, (select id from millrace.job where state in ('failed', 'cancelled') limit 400) j`,
  )
  const read = () => store.details({ jobs: [chain], parts: ['dependents'] })
  expect(await misdeeds(read, DEPENDENTS_LISTED + 1)).toEqual([])
  const [details] = (await read()).jobs
  expect(details!.dependents).toHaveLength(DEPENDENTS_LISTED)
  expect(details!.moreDependents).toBe(true)
})

test('dependents of one chain are read when it ends, and no others', async () => {
  const active = await standing(1, 'active', 4)
  const dependents = EACH / 10
  expect(await misdeeds(() => d.commit({ groups: [complete(active)] }), 4 * dependents)).toEqual([])
  expect((await d.details(active)).dependents.filter(({ state }) => state === 'ended')).toHaveLength(dependents)
})

test('of a group at its limit nothing is read, however many of its jobs stand first; nor of others more than is asked for', async () => {
  const queue = 'groups'
  await d.add('work', { queue, group: 'large' })
  await run(
    database,
    `insert into millrace.job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, grp)
     select 'group ' || n, nextval('millrace.job_order'), l.queue, l.id, 'waiting', 0, n, 5, 3, 1, case when n < 30000 then 'large' else 'g' || n % 40 end
     from millrace.lane l, generate_series(1, 34000) n where l.shared`,
  )
  await d.limit({ group: { concurrency: 2 } }, queue)
  const most = 2 * MOST
  const claim = async (want: number) => (await d.claim(want, { queues: [queue] })).map(({ group }) => group)
  let claimed: readonly (string | undefined)[] = []
  expect(await misdeeds(async () => (claimed = await claim(10)), most)).toEqual([])
  expect(claimed).toEqual(['large', 'large', ...Array.from({ length: 8 }, (_, n) => `g${n}`)])
  expect(await misdeeds(async () => (claimed = await claim(100)), most)).toEqual([])
  expect(claimed).toHaveLength(72)
  expect(await misdeeds(async () => (claimed = await claim(10)), most)).toEqual([])
  expect(claimed).toEqual([])

  const add = () => d.commit({ groups: [[insert(d.id(), 'work', { queue, group: 'large' })]] })
  expect(await misdeeds(add)).toEqual([])
  const some = { queue, limit: 20 }
  expect(await misdeeds(() => store.find({ ...some, group: 'g7' }), 100)).toEqual([])
  expect(await misdeeds(() => store.find({ ...some, group: 'large', order: 'newest', states: ['waiting'] }))).toEqual(
    [],
  )
  await d.limit({ group: { backlog: 90 } }, queue)
  expect(
    await misdeeds(() => d.refuse('full', 'a group of more', insert(d.id(), 'work', { queue, group: 'g7' }))),
  ).toEqual([])
  await d.limit({}, queue)
  expect(await misdeeds(async () => (claimed = await claim(100)))).toEqual([])
  expect(claimed).toHaveLength(100)
})

test('jobs are moved by hand', async () => {
  const groups = [
    retry(await standing(2, 'failed', 9)),
    promote(await standing(2, 'delayed', 9)),
    cancel(await standing(2, 'waiting-children', 9)),
    remove(await standing(2, 'completed', 9)),
    [put('pause:two', { all: true, names: [] }, 0)],
  ]
  expect(await misdeeds(() => d.commit({ groups }))).toEqual([])
})

describe('filtered pages', () => {
  beforeAll(() =>
    run(
      database,
      `update millrace.job set finished_at = seq, error = json_build_object('name', 'Error', 'message', id, 'code', 'C' || seq % 3, 'fingerprint', 'f' || seq % 5)
         where state = 'failed';
       insert into millrace.tag (queue, tag, seq, job) select queue, 'common', seq, id from millrace.job where state <> 'active' union all
         select queue, 'rare', seq, id from millrace.job where id like '% completed 7';`,
    ),
  )

  const indexed: readonly (readonly [string, Parameters<Store['find']>[0]])[] = [
    ['a tag', { queue: 'one', tags: ['common'] }],
    ['several tags', { queue: 'one', tags: ['common', 'rare'] }],
    ['any of several tags', { queue: 'one', anyTag: ['common', 'rare'], order: 'newest' }],
    ['a fingerprint', { queue: 'one', fingerprint: 'f2' }],
    ['a fingerprint, newest first', { queue: 'one', fingerprint: 'f2', order: 'newest' }],
    ['a code', { queue: 'two', errorCode: 'C1' }],
    ['the beginning of an id', { idPrefix: '2 failed 41' }],
    ['the last that failed or were cancelled', { queue: 'one', order: 'finished' }],
    ['a range of ends', { queue: 'one', order: 'finished', finished: { from: 5, to: 10 ** 9 } }],
    ['a range in which nothing was added', { queue: 'one', created: { from: 4e12 } }],
  ]

  test.each(indexed)(
    'finding %s reads a page from the head of an index, and the next one too',
    async (_what, query) => {
      const limit = 20
      // Rows of several lists, and of the tags that are counted to find the rarest.
      const most = 1_100
      let cursor: string | undefined
      expect(await misdeeds(async () => ({ cursor } = await store.find({ ...query, limit })), most)).toEqual([])
      const at = cursor === undefined ? {} : { cursor }
      expect(await misdeeds(() => store.find({ ...query, ...at, limit }), most)).toEqual([])
    },
  )

  test('what has no index is looked for in a bounded number of rows, however it ends', async () => {
    const most = 5_000
    for (const query of [
      { queue: 'one', worker: 'nobody' },
      { queue: 'one', started: { from: 1 } },
      { tags: ['common'], worker: 'nobody' },
      { fingerprint: 'f1', tags: ['rare'], names: ['nobody'] },
    ]) {
      expect(await misdeeds(() => store.find({ ...query, limit: 20 }), most)).toEqual([])
      expect(await misdeeds(() => store.find({ ...query, count: true }), most)).toEqual([])
    }
  })

  test('causes of failures are found one from the other, and their jobs counted in the index', async () => {
    const read = () => store.details({ jobs: [], parts: [], failures: { queue: 'one', limit: 10 } })
    expect(await misdeeds(read)).toEqual([])
    expect((await read()).failures!.map(({ fingerprint }) => fingerprint)).toEqual(['f0', 'f1', 'f2', 'f3', 'f4'])
  })
})
