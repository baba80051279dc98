// conformance/cases/details.ts: cases on `details`: edges, logs, steps and revoked leases.
import { must, same } from '../check.js'
import { LEASE, first, openEdge } from '../driver.js'
import { area } from '../harness.js'
import { cancel, complete, insert, note, remove, failAndRetry } from '../changes.js'
import type { Change } from '../../job/change.js'
import { LOGS_KEPT } from '../../job/job.js'
import { readDetails } from '../../store/read-pages.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { DetailsQuery, JobDetails } from '../../store/store.js'

/** Bytes of a large entry in these cases. */
const LARGE = 10_000

const emptyDetails = (id: string): JobDetails => ({
  id,
  edges: [],
  dependents: [],
  logs: [],
  steps: [],
  related: false,
})

/** Cases of details. */
export const details = area('details', {
  'revoked leases are listed by their worker until they are given up or expire': async (h) => {
    const d = first(h)
    const revoked = async (...workers: string[]): Promise<unknown> =>
      (await h.store.details({ revokedFrom: workers })).revoked?.map(({ id, fence }) => `${id} ${fence}`).toSorted()
    await d.addMany(4, 'work')
    const [a, b, c] = await d.claim(3)
    const other = await d.claimOne({ worker: 'other' })
    same(await revoked(a!.worker!, 'other'), [], 'a lease of an active job is not revoked')
    await d.land(...remove(a!))
    await d.land(...cancel(b!))
    await d.land(...complete(c!))
    await d.land(...remove(other))
    const mine = [`${a!.id} ${a!.fence}`, `${b!.id} ${b!.fence}`].toSorted()
    same(
      await revoked(a!.worker!),
      mine,
      'jobs removed or cancelled while they ran are listed, jobs that ended are not',
    )
    same(await revoked('other', 'unknown'), [`${other.id} ${other.fence}`], 'each worker has its own')
    same(await revoked(), [], 'no worker has no revoked leases')
    same((await h.store.details({})).revoked, undefined, 'they are listed if requested')
    await d.renew(a!, 0)
    same(await revoked(a!.worker!), [`${b!.id} ${b!.fence}`], 'one that was given up is not listed')
    await h.advance(LEASE)
    await d.add('work')
    same(await revoked(a!.worker!, 'other'), [], 'expired ones are not listed')
  },

  'edges are returned in the order given, and dependents by the chain': async (h) => {
    const d = first(h)
    for (const id of ['c', 'a', 'b']) await d.add('child', { id })
    const after = [
      { on: 'b', policy: 'ignore' },
      { on: 'c', policy: 'fail' },
      { on: 'a', policy: 'remove' },
    ] as const
    const parent = await d.add('parent', { id: 'p', after })
    const other = await d.add('other', { id: 'o', after: ['a'] })
    same(
      await d.edges(parent),
      after.map(({ on, policy }) => openEdge('p', on, 'child', policy)),
      'edges are returned in the order in which they were given',
    )
    const dependents = (await d.details('a')).dependents.toSorted((x, y) => (x.dependent < y.dependent ? -1 : 1))
    same(
      dependents,
      [openEdge(other.id, 'a', 'child'), openEdge('p', 'a', 'child', 'remove')],
      'the dependents of a chain are returned',
    )
    same((await d.details(parent)).dependents, [], 'the last job has no dependents')
  },

  'only the requested parts are read': async (h) => {
    const d = first(h)
    await d.land(complete(await d.running('child', { id: 'child' }), { result: 1 }))
    const parent = await d.running('parent', { id: 'parent', after: ['child'] })
    await d.land(note(parent, { logs: ['line'], steps: [{ name: 's', result: '2' }] }))
    const whole = (await h.store.details({ jobs: ['parent', 'child'] })).jobs
    const parts = ['edges', 'outcomes', 'dependents', 'logs', 'steps', 'related'] as const
    same((await h.store.details({ jobs: ['parent', 'child'], parts })).jobs, whole, 'all parts are read by default')
    for (const part of parts) {
      const { jobs } = await h.store.details({ jobs: ['parent', 'child'], parts: [part] })
      const expected = whole.map((each) => ({
        ...emptyDetails(each.id),
        ...(part === 'edges' && {
          edges: each.edges.map((edge) => ({ ...edge, result: undefined, error: undefined })),
        }),
        ...(part !== 'edges' && part !== 'outcomes' && { [part]: each[part] }),
      }))
      same(jobs, expected, 'a part that was not requested is empty')
    }
    same(whole[0]?.edges[0]?.result, '1', 'edges have results with their outcomes')
    same(whole[1]?.dependents[0]?.result, undefined, 'dependents have none')
  },

  'details are cut by bytes, and the next page can be read': async (h) => {
    const d = first(h)
    const large = 'x'.repeat(LARGE)
    const children = ['c1', 'c2', 'c3', 'c4', 'c5']
    for (const id of children) await d.land(complete(await d.running('child', { id }), { result: large }))
    const parent = await d.running('parent', { id: 'parent', after: children })
    const lines = ['1', '2', '3', '4', '5', '6'].map((each) => each.repeat(LARGE))
    await d.land(note(parent, { logs: lines }))
    const steps = ['a', 'b', 'c', 'd'].map((name) => ({ name, result: JSON.stringify(large) }))
    await d.land(note(parent, { steps }))
    await d.add('work', { id: 'other' })
    const jobs = ['parent', 'other', 'c1']
    const whole = (await h.store.details({ jobs, bytes: 1000 * LARGE })).jobs
    same(
      whole.map(({ more }) => more),
      [undefined, undefined, undefined],
      'what fits is not cut',
    )
    same([whole[0]?.edges.length, whole[0]?.logs.length, whole[0]?.steps.length], [5, 6, 4], 'all of it is there')
    for (const bytes of [1, 2 * LARGE, 5 * LARGE]) {
      const [cut, ...rest] = (await h.store.details({ jobs, bytes })).jobs
      must(rest.length === 0, 'jobs behind the one that reaches the bytes are left out')
      must((cut?.steps.length ?? 0) >= 1 && (cut?.logs.length ?? 9) < 6, 'lists are cut, and have one entry at least')
      same(await runSteps(readDetails(h.store, { jobs, bytes })), whole, 'nothing is lost or repeated between pages')
    }
    const some = await runSteps(readDetails(h.store, { jobs, bytes: 1, logs: { after: 1, limit: 3 } }))
    same(
      some[0]?.logs.map(({ index }) => index),
      [2, 3, 4],
      'a limit on lines holds for all of them together',
    )
  },

  'a page of edges is read by its position': async (h) => {
    const d = first(h)
    const children = Array.from({ length: 7 }, (_, n) => `c${n}`)
    for (const id of children) await d.land(complete(await d.running('child', { id }), { result: id }))
    await d.add('parent', { id: 'parent', after: children })
    for (const parts of [['edges', 'outcomes'], ['edges']] as const) {
      const page = async (edges: DetailsQuery['edges'], bytes?: number): Promise<JobDetails> =>
        (await h.store.details({ jobs: ['parent'], parts, edges, ...(bytes !== undefined && { bytes }) })).jobs[0]!
      const seen: string[] = []
      let cut = 0
      for (let after: number | undefined = -1; after !== undefined;) {
        const { edges, more }: JobDetails = await page({ limit: 3, ...(after >= 0 && { after }) })
        must(edges.length <= 3, 'a page has no more than its limit')
        seen.push(...edges.map(({ chain }) => chain))
        after = more?.edges
        if (after !== undefined) cut++
      }
      same([seen, cut], [children, 2], 'nothing is lost or repeated, and the last page has no next one')
      same((await page({ limit: 7 })).more, undefined, 'a page that holds all is not cut')
      same((await page({ limit: 100 })).edges.length, 7, 'a page may have room for more')
      const small = await page({ limit: 3 }, 1)
      same(small.edges.length, parts.length === 2 ? 1 : 3, 'a page is cut by bytes as well, where there are outcomes')
      must(small.more?.edges !== undefined, 'and then has a next page')
    }
  },

  'jobs are returned in the requested order, and empty if they do not exist': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    const { jobs, cells } = await h.store.details({ jobs: ['first-2', 'missing', 'first-1'] })
    same(
      jobs,
      [emptyDetails('first-2'), emptyDetails('missing'), emptyDetails('first-1')],
      'jobs are returned in the requested order',
    )
    same(cells, [], 'cells are not returned unless requested')
    same(await h.store.details({}), { jobs: [], cells: [] }, 'a request for nothing returns nothing')
  },

  'whether a job has relatives (others of its chain, or children) is returned': async (h) => {
    const d = first(h)
    const hasRelatives = async (...ids: string[]): Promise<readonly boolean[]> =>
      (await h.store.details({ jobs: ids })).jobs.map((each) => each.related)
    const alone = await d.running('work', { id: 'alone' })
    await d.land(complete(alone))
    const head = await d.running('work', { id: 'head' })
    same(await hasRelatives('alone', 'head'), [false, false], 'a chain of one has no relatives')
    await d.land(complete(head, { continuation: insert('next', 'work', { chain: { id: 'head', index: 1 } }) }))
    await d.add('child', { id: 'child', parent: 'alone' })
    same(
      await hasRelatives('head', 'next', 'alone', 'child'),
      [true, true, true, false],
      'the chain and the children are relatives',
    )
    await d.land(remove((await h.store.get(['head']))[0]!))
    same(await hasRelatives('next', 'head'), [false, false], 'removed jobs are not relatives')
  },

  'log lines are kept in order, with their time and attempt': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const one = await d.commit({ groups: [note(held, { logs: ['one', 'two'] }), note(held, { logs: ['three'] })] })
    await h.advance(1_000)
    await d.land(failAndRetry(held, 0))
    await d.upkeep()
    const again = await d.claimOne()
    const two = await d.commit({ groups: [note(again, { logs: ['four', ''] })] })
    const expected = [
      { index: 1, at: one.now, attempt: 1, line: 'one' },
      { index: 2, at: one.now, attempt: 1, line: 'two' },
      { index: 3, at: one.now, attempt: 1, line: 'three' },
      { index: 4, at: two.now, attempt: 2, line: 'four' },
      { index: 5, at: two.now, attempt: 2, line: '' },
    ]
    same((await d.details(held)).logs, expected, 'log lines are returned in order')
    await d.land(complete(again))
    same((await d.details(held)).logs, expected, 'log lines outlive the end of their job')
    await d.land(remove(await d.job(held)))
    same((await d.details(held)).logs, [], 'log lines are removed with their job')
  },

  'a page of a log is read by its position': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const { id } = held
    await d.land(note(held, { logs: Array.from({ length: 10 }, (_, at) => `line ${at + 1}`) }))
    const page = async (logs: DetailsQuery['logs']): Promise<readonly number[]> =>
      (await h.store.details({ jobs: [id], logs })).jobs[0]!.logs.map(({ index }) => index)
    same(await page({ limit: 3 }), [1, 2, 3], 'the first page')
    same(await page({ after: 3, limit: 3 }), [4, 5, 6], 'the next one')
    same(await page({ after: 8 }), [9, 10], 'the rest')
    same(await page({ after: 10, limit: 3 }), [], 'and nothing after the last')
    same(await page({ limit: 0 }), [], 'none, if none is requested')
  },

  'a job keeps the last lines of its log, and numbers continue': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const lines = (from: number, many: number): string[] => Array.from({ length: many }, (_, at) => `${from + at}`)
    await d.land(note(held, { logs: lines(1, LOGS_KEPT) }))
    same((await d.details(held)).logs.length, LOGS_KEPT, 'as many as are kept are kept')
    const refused = await d.send([
      ...note(held, { logs: ['never'] }),
      { ...failAndRetry(held, 0)[0]!, id: 'missing' } as Change,
    ])
    same(refused.ok, false, 'a group is refused')
    const whole = (await d.details(held)).logs
    same([whole.length, whole[0]?.line, whole.at(-1)?.line], [LOGS_KEPT, '1', `${LOGS_KEPT}`], 'and drops nothing')
    await d.land(note(held, { logs: lines(LOGS_KEPT + 1, 5) }))
    // With progress as well: stores may write such a note by another path.
    await d.land(note(held, { progress: 1, logs: lines(LOGS_KEPT + 6, 2) }))
    const { logs } = await d.details(held)
    same(logs.length, LOGS_KEPT, 'no more are kept')
    same([logs[0]?.index, logs[0]?.line], [8, '8'], 'the oldest are dropped')
    same([logs.at(-1)?.index, logs.at(-1)?.line], [LOGS_KEPT + 7, `${LOGS_KEPT + 7}`], 'and the newest are there')
    const [from] = (await h.store.details({ jobs: [held.id], logs: { after: 2, limit: 1 } })).jobs
    same(
      from?.logs.map(({ index }) => index),
      [8],
      'a page begins with what is kept',
    )
    await d.land(note(held, { logs: lines(LOGS_KEPT + 8, 2 * LOGS_KEPT) }))
    const last = (await d.details(held)).logs
    same([last.length, last[0]?.index], [LOGS_KEPT, 2 * LOGS_KEPT + 8], 'also where one note brings more than are kept')
  },

  'a note writes progress and log lines and leaves the rest': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(note(held, { progress: 10, logs: ['ten'] }))
    const noted = await d.job(held)
    same(noted, { ...held, progress: '10' }, 'progress is written, and nothing else')
    await d.land(note(held, { logs: ['more'] }))
    same(await d.job(held), noted, 'a note without progress leaves it')
    await d.land(note(held, { progress: null }))
    same((await d.job(held)).progress, 'null', 'a progress of null is a progress')
    same((await d.renew(held, LEASE)).ok, true, 'a note leaves the lease with its holder')
  },

  'a move keeps what it does not name and empties what it sets to null': async (h) => {
    const d = first(h)
    const held = await d.running('work', { data: { keep: true } })
    await d.land(note(held, { progress: 10 }))
    await d.land(failAndRetry(held, 1_000))
    const delayed = await d.job(held)
    same([delayed.data, delayed.progress], ['{"keep":true}', '10'], 'a move keeps what it does not name')
    const move = {
      kind: 'move',
      id: held.id,
      to: 'delayed',
      held: false,
      place: 'old',
      why: undefined,
      closesBroken: false,
    } as const
    await d.land({ ...move, fence: delayed.fence, set: { data: null, error: null } })
    const emptied = await d.job(held)
    same([emptied.data, emptied.error, emptied.runAt], [undefined, undefined, delayed.runAt], 'null empties a field')
    const { now } = await d.commit({
      groups: [[{ ...move, fence: emptied.fence, to: 'waiting', set: { run: null } }]],
    })
    same((await d.job(held)).runAt, now, 'null empties a date: the job can be claimed since now')
  },
})
