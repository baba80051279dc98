// conformance/cases/find/filters.ts: cases on filtered queries: by tags, worker, id, times and errors; their order, pages and
// counts.
import { withFingerprint } from '../../../job/errors/fingerprint.js'
import type { ErrorInfo, JobRecord } from '../../../job/job.js'
import type { Page, Query, Store, TimeRange } from '../../../store/store.js'
import { must, same } from '../../check.js'
import { first, ids } from '../../driver.js'
import type { Driver } from '../../driver.js'
import { area } from '../../harness.js'
import type { Harness } from '../../harness.js'
import { cancel, complete, fail, failAndRetry, insert, promote, remove, retry } from '../../changes.js'

const TIMEOUT: ErrorInfo = { name: 'TimeoutError', message: 'took 3 s', code: 'ETIMEDOUT' }
const MISSING: ErrorInfo = { name: 'Error', message: 'no such file', code: 'ENOENT' }
const PLAIN: ErrorInfo = { name: 'TypeError', message: 'x is undefined' }

const fingerprint = (error: ErrorInfo): string => withFingerprint(error).fingerprint!

/** Reads all pages; each may be short or empty. */
async function pages(store: Store, query: Query): Promise<readonly JobRecord[]> {
  const found: JobRecord[] = []
  let page: Page<JobRecord> | undefined
  for (let n = 0; n < 200; n++) {
    page = await store.find({ ...query, ...(page?.cursor !== undefined && { cursor: page.cursor }) })
    must(page.items.length <= (query.limit ?? 100), 'a page has no more than its limit')
    found.push(...page.items)
    if (page.cursor === undefined) return found
  }
  must(false, 'paging ends')
  return found
}

/** The count of a query, over all its pages. */
async function counted(store: Store, query: Query): Promise<number> {
  let count = 0
  let page: Page<JobRecord> | undefined
  do {
    page = await store.find({ ...query, count: true, ...(page?.cursor !== undefined && { cursor: page.cursor }) })
    same(page.items, [], 'a count has no jobs')
    count += page.count!
  } while (page.cursor !== undefined)
  return count
}

const within = (at: number | undefined, { from = -Infinity, to = Infinity }: TimeRange): boolean =>
  at !== undefined && at >= from && at < to

/** What each field of a query means, one by one. */
const meanings: { readonly [Field in keyof Query]?: (job: JobRecord, value: never) => boolean } = {
  queue: (job, value: string) => job.queue === value,
  states: (job, value: readonly string[]) => value.includes(job.state),
  names: (job, value: readonly string[]) => value.includes(job.name),
  group: (job, value: string) => job.group === value,
  kind: (job, value: string) => job.kind === value,
  tags: (job, value: readonly string[]) => value.every((tag) => job.extras?.tags?.includes(tag) === true),
  anyTag: (job, value: readonly string[]) => value.some((tag) => job.extras?.tags?.includes(tag) === true),
  worker: (job, value: string) => job.worker === value,
  idPrefix: (job, value: string) => job.id.startsWith(value),
  created: (job, value: TimeRange) => within(job.createdAt, value),
  started: (job, value: TimeRange) => within(job.startedAt, value),
  finished: (job, value: TimeRange) => within(job.finishedAt, value),
  errorCode: (job, value: string) => job.state !== 'completed' && job.error?.code === value,
  fingerprint: (job, value: string) => job.state !== 'completed' && job.error?.fingerprint === value,
}

function matches(job: JobRecord, query: Query): boolean {
  return Object.entries(query).every(([field, value]) => {
    const fits = meanings[field as keyof Query] as ((job: JobRecord, value: unknown) => boolean) | undefined
    return fits === undefined || fits(job, value)
  })
}

/** Compares what a query finds, both ways, page by page and counted, with the jobs that match. */
async function check(store: Store, known: readonly JobRecord[], query: Query): Promise<void> {
  const expected = ids(known.filter((job) => matches(job, query)))
  const about = JSON.stringify(query)
  same(ids(await pages(store, { ...query, limit: 3 })), expected, `paging finds what matches ${about}`)
  const newest = await pages(store, { ...query, order: 'newest', limit: 4 })
  same(ids(newest), expected.toReversed(), `newest first, paging finds what matches ${about}`)
  same(ids((await store.find({ ...query, limit: 1000 })).items), expected, `one page finds what matches ${about}`)
  same(await counted(store, query), expected.length, `a count finds what matches ${about}`)
  const ends = known
    .filter((job) => matches(job, query) && (job.state === 'failed' || job.state === 'cancelled'))
    .map((job, at) => ({ job, at }))
    .toSorted((a, b) => b.job.finishedAt! - a.job.finishedAt! || b.at - a.at)
  const ended = await pages(store, { ...query, order: 'finished', limit: 3 })
  same(ids(ended), ids(ends.map(({ job }) => job)), `the last to end comes first of what matches ${about}`)
}

/** Adds jobs that differ in what filters look at; returns them in the order of insertion, and some of their times. */
async function population(
  h: Harness,
): Promise<{ readonly d: Driver; readonly known: readonly JobRecord[]; readonly times: readonly number[] }> {
  const d = first(h)
  const added: string[] = []
  const add = async (name: string, id: string, tags?: readonly string[], more: object = {}): Promise<JobRecord> => {
    added.push(id)
    return d.add(name, { id, ...(tags && { extras: { tags } }), ...more })
  }
  const times: number[] = []
  for (let round = 0; round < 3; round++) {
    const id = (what: string): string => `${round % 2 === 0 ? 'even' : 'odd'}-${what}-${round}`
    times.push((await add('a', id('late'), ['late'], { run: { in: 3_600_000 } })).createdAt)
    await add('b', id('tagged'), ['import', `user:${round}`], { run: { in: 3_600_000 } })
    await add('b', id('elsewhere'), ['import'], { queue: 'other' })
    for (const [name, what, error, tags] of [
      ['a', 'timeout', TIMEOUT, ['import']],
      ['b', 'missing', MISSING, undefined],
      ['a', 'plain', PLAIN, ['import', 'user:1']],
    ] as const) {
      const job = await add(name, id(what), tags, round === 1 ? {} : { group: 'tenant' })
      await h.advance(1_000)
      const [claimed] = await d.claim(1, { names: [name], worker: `worker ${round}` })
      same(claimed?.id, job.id, 'the job is claimed')
      await h.advance(1_000)
      await d.land(round === 2 ? failAndRetry(claimed!, 3_600_000, error) : fail(claimed!, error))
    }
    await add('a', id('done'), ['import'])
    await d.land(complete(await d.claimOne({ names: ['a'], worker: 'closer' })))
    const dropped = await add('b', id('dropped'), ['import'])
    await d.land(cancel(dropped, 'not needed'))
    await h.advance(60_000)
  }
  await add('a', 'held', ['import'])
  await d.claim(1, { names: ['a'], worker: 'holder' })
  const known = (await h.store.get(added)).map((job) => job!)
  return { d, known, times }
}

/** Cases of filtered queries. */
export const filters = area('filters', {
  'every filter finds what matches, alone and with every other, in every order, page by page': async (h) => {
    const { known, times } = await population(h)
    const [, second, third] = times as [number, number, number]
    const single: readonly Query[] = [
      { queue: 'mill' },
      { states: ['failed', 'cancelled'] },
      { names: ['b'] },
      { group: 'tenant' },
      { tags: ['import'] },
      { tags: ['import', 'user:1'] },
      { anyTag: ['user:1', 'user:2', 'late'] },
      { worker: 'worker 1' },
      { idPrefix: 'even-' },
      { created: { from: second, to: third } },
      { started: { from: second } },
      { finished: { to: third } },
      { errorCode: 'ETIMEDOUT' },
      { fingerprint: fingerprint(PLAIN) },
    ]
    for (const [at, one] of single.entries()) {
      await check(h.store, known, { kind: 'job', ...one })
      for (const other of single.slice(at + 1)) await check(h.store, known, { kind: 'job', ...other, ...one })
    }
    await check(h.store, known, {
      queue: 'mill',
      kind: 'job',
      states: ['failed'],
      tags: ['import'],
      anyTag: ['user:1', 'user:7'],
      created: { from: second },
      finished: { to: third },
      names: ['a'],
    })
  },

  'what is not there is not found': async (h) => {
    const { known } = await population(h)
    for (const query of [
      { tags: ['unused'] },
      { tags: ['import', 'unused'] },
      { anyTag: ['impor', 'import '] },
      { worker: 'worker' },
      { idPrefix: 'even-late-0-' },
      { errorCode: 'etimedout' },
      { fingerprint: '' },
      { created: { to: 1 } },
      { queue: 'nowhere', tags: ['import'] },
      { kind: 'schedule', tags: ['import'] },
    ] as const) {
      await check(h.store, known, query)
    }
  },

  'the tags of a job are kept with it, whatever happens to it, and forgotten when it is removed': async (h) => {
    const d = first(h)
    const tagged = { extras: { tags: ['one', 'zwei', 'три'] } }
    const job = await d.running('work', { id: 'job', ...tagged })
    same(job.extras?.tags, tagged.extras.tags, 'a claim returns the tags')
    await d.land(fail(job))
    await d.land(retry(await d.job('job')))
    same((await d.job('job')).extras?.tags, tagged.extras.tags, 'a move keeps the tags')
    for (const tag of tagged.extras.tags) same(await found(h.store, { tags: [tag] }), ['job'], 'each tag finds the job')
    await d.land(remove(await d.job('job')))
    for (const tag of tagged.extras.tags) same(await found(h.store, { tags: [tag] }), [], 'no tag finds what is gone')
    await d.add('work', { id: 'job' })
    for (const tag of tagged.extras.tags)
      same(await found(h.store, { tags: [tag] }), [], 'a new job of the id has none')
  },

  'a group that is refused leaves no tags, and no error': async (h) => {
    const d = first(h)
    const job = await d.running('work', { id: 'job' })
    const other = insert('other', 'work', { extras: { tags: ['left'] } })
    await d.refuse(
      'missing',
      'a missing dependency refuses',
      other,
      fail(job, TIMEOUT),
      insert('waits', 'work', { after: ['gone'] }),
    )
    same(await found(h.store, { tags: ['left'] }), [], 'the tag went with the group')
    same(await found(h.store, { errorCode: 'ETIMEDOUT' }), [], 'the error went with the group')
  },

  'a job is found by its last error until it completes or starts over by hand': async (h) => {
    const d = first(h)
    const failing: Query = { queue: 'mill', errorCode: 'ETIMEDOUT' }
    await d.land(failAndRetry(await d.running('work', { id: 'job', attempts: 3 }), 1_000, TIMEOUT))
    same(await found(h.store, failing), ['job'], 'a job that is retried is found by its error')
    same(await found(h.store, { fingerprint: fingerprint(TIMEOUT) }), ['job'], 'and by its fingerprint')
    await d.land(fail(await promoted(d, 'job'), MISSING))
    same(await found(h.store, failing), [], 'the last error counts, not those before')
    same(await found(h.store, { errorCode: 'ENOENT' }), ['job'], 'a job that failed is found by its error')
    await d.land(retry(await d.job('job')))
    same(await found(h.store, { errorCode: 'ENOENT' }), [], 'a job that starts over has no error')
    await d.land(failAndRetry(await d.claimOne(), 1_000, TIMEOUT))
    await d.land(complete(await promoted(d, 'job')))
    same(await found(h.store, failing), [], 'a job that completed is not found by the errors before')
  },

  'failing jobs are counted by fingerprint, with the first and the last that was added': async (h) => {
    const { d, known } = await population(h)
    const failing = known.filter(
      ({ queue, state, error }) => queue === 'mill' && state !== 'completed' && error?.fingerprint,
    )
    const marks = [...new Set(failing.map(({ error }) => error!.fingerprint!))].toSorted()
    const expected = marks.map((mark) => {
      const jobs = failing.filter(({ error }) => error!.fingerprint === mark)
      const [oldest, newest] = [jobs[0]!, jobs.at(-1)!]
      const times = { first: oldest.errors.at(-1)!.at, last: newest.errors.at(-1)!.at }
      return {
        fingerprint: mark,
        count: jobs.length,
        more: false,
        ...times,
        id: newest.id,
        name: newest.name,
        error: newest.error!,
      }
    })
    same(marks.length, 3, 'three causes')
    const read = async (query: { readonly after?: string; readonly limit: number }, queue = 'mill') =>
      (await h.store.details({ jobs: [], parts: [], failures: { queue, ...query } })).failures
    same(await read({ limit: 10 }), expected, 'each fingerprint has its jobs, in the order of fingerprints')
    same(await read({ limit: 2 }), expected.slice(0, 2), 'a list is cut by its limit')
    same(await read({ after: marks[1]!, limit: 2 }), expected.slice(2), 'and goes on after a fingerprint')
    same(await read({ limit: 10 }, 'nowhere'), [], 'a queue never used has no failures')
    for (const job of failing) await d.land(remove(await d.job(job.id)))
    same(await read({ limit: 10 }), [], 'jobs that are gone do not count')
  },

  'a page for an index of values holds every match, in order, whether there is such an index or not': async (h) => {
    const d = first(h)
    const odd = { n: 1, list: [{ id: 7 }] }
    for (let n = 0; n < 6; n++) await d.add(n % 3 === 0 ? 'index' : 'mail', { data: n % 2 === 0 ? { n: 2 } : odd })
    await d.add('mail', { data: odd, queue: 'other' })
    await d.add('mail', { data: 'x'.repeat(200_000) })
    const matching = (jobs: readonly JobRecord[]): readonly string[] =>
      ids(jobs.filter(({ data }) => data === JSON.stringify(odd)))
    const query: Query = {
      queue: 'mill',
      contains: [['{"data":{"n":1}}'], ['{"data":{"x":1}}', '{"data":{"list":[{"id":7}]}}']],
    }
    const expected = matching(await pages(h.store, { queue: 'mill' }))
    const check = async (what: string, looked: number): Promise<void> => {
      const found = await pages(h.store, query)
      same(matching(found), expected, `${what}: all matches, the oldest first`)
      same(found.length, looked, `${what}: how many jobs are left to look at`)
      const newest = await pages(h.store, { ...query, order: 'newest', limit: 1 })
      same(matching(newest), expected.toReversed(), `${what}: all matches, the newest first, page by page`)
      const named = await pages(h.store, { ...query, names: ['index'] })
      same(
        matching(named),
        expected.filter((_, n) => n % 3 === 1),
        `${what}: with another field`,
      )
      same(await pages(h.store, { ...query, order: 'finished' }), [], `${what}: nothing has ended`)
    }
    await check('without an index', 7)
    must((await h.store.find(query)).indexed === undefined, 'a page without an index is not indexed')
    if (h.store.indexValues === undefined) return
    await h.store.indexValues('mill', true)
    await h.store.indexValues('mill', true)
    await check('with an index', 4)
    same((await h.store.find(query)).indexed, true, 'a page from an index is indexed')
    must((await h.store.find({ ...query, queue: 'other' })).indexed === undefined, 'other queues have none')
    await h.store.indexValues('mill', false)
    await check('after it was dropped', 7)
  },

  'one call looks at a bounded number of rows, and the next goes on where it stopped': async (h) => {
    const d = first(h)
    const total = 4_500
    await d.addMany(total, 'work')
    await d.add('work', { id: 'needle', extras: { tags: ['sharp'] } })
    const query: Query = { queue: 'mill', created: { from: 0 }, worker: 'nobody' }
    let calls = 0
    let page = await h.store.find(query)
    for (; page.cursor !== undefined; calls++) {
      same(page.items, [], 'nothing matches')
      page = await h.store.find({ ...query, cursor: page.cursor })
    }
    must(calls > 0 && calls < 10, 'an empty page has a cursor while there is more to look at')
    same(ids((await h.store.find({ tags: ['sharp'] })).items), ['needle'], 'a tag is found without looking at others')
    same(await counted(h.store, { queue: 'mill', created: { from: 0 } }), total + 1, 'a count goes on, too')
  },
})

async function found(store: Store, query: Query): Promise<readonly string[]> {
  return ids((await store.find(query)).items)
}

/** Promotes a delayed job and claims it. */
async function promoted(d: Driver, id: string): Promise<JobRecord> {
  await d.land(promote(await d.job(id)))
  return d.claimOne()
}
