// conformance/cases/waiting.ts: cases on running jobs that wait for children, and on the outcomes that edges carry.
import type { NewEdge } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import { has, must, same } from '../check.js'
import { ask, first, ids, openEdge } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import { BOOM, cancel, complete, fail, insert, json, remove, retry, snooze, waits } from '../changes.js'

/** The outcomes that the edges of a job carry. */
async function outcomes(d: Driver, of: JobRecord): Promise<readonly unknown[]> {
  return (await d.edges(of)).map(({ chain, state, result, error }) => ({ chain, state, result, error }))
}

/** Claims and completes every waiting job of a name. */
async function runAll(d: Driver, name: string, result?: unknown): Promise<void> {
  const claimed = await d.claim(50, { names: [name] })
  await d.commit({ groups: claimed.map((job) => complete(job, { result })) })
}

const child = (id: string, parent: JobRecord) => insert(id, 'child', { parent: parent.id })

/** Cases of waiting for children, and of the results of dependencies. */
export const waiting = area('waiting for children', {
  'a running job that waits for children gives back its lease and its attempt': async (h) => {
    const d = first(h)
    const job = await d.running('parent')
    const inserted = await d.land(waits(job, ['kid-1', 'kid-2'], [child('kid-1', job), child('kid-2', job)]))
    same(ids(inserted), ['kid-1', 'kid-2'], 'the children are inserted with the wait')
    const parent = await d.job(job)
    const state = {
      state: 'waiting-children',
      pending: 2,
      attempt: 0,
      leaseUntil: undefined,
      dueAt: undefined,
    } as const
    has(parent, { ...state, worker: undefined, fence: job.fence + 1 }, 'it waits, as if it had not been claimed')
    same(
      await d.edges(parent),
      ['kid-1', 'kid-2'].map((id) => openEdge(job.id, id, 'child')),
      'it has an edge to each of them',
    )
    await d.refuse('fence', 'what it did before is settled', complete(job))
    same(ids(await d.claim(5)), ['kid-1', 'kid-2'], 'only the children can be claimed')
  },

  'a job that waited for children is released in the commit that ends the last of them': async (h) => {
    const d = first(h)
    const job = await d.running('parent')
    await d.land(waits(job, ['kid'], [child('kid', job)]))
    const kid = await d.claimOne()
    const { asks } = await d.commit({ groups: [complete(kid, { result: { n: 1 } })], asks: [ask(1)] })
    same(ids(asks[0]!), [job.id], 'the claim of the settling batch can claim it')
    has(asks[0]![0]!, { attempt: 1, pending: 0 }, 'it has used one attempt')
    await d.land(waits(asks[0]![0]!, ['kid-2'], [child('kid-2', job)]))
    await runAll(d, 'child', 'two')
    const again = await d.claimOne({ names: ['parent'] })
    has(again, { id: job.id, attempt: 1 }, 'it may wait as often as it likes')
    same(
      await outcomes(d, again),
      [
        { chain: 'kid', state: 'ended', result: json({ n: 1 }), error: undefined },
        { chain: 'kid-2', state: 'ended', result: json('two'), error: undefined },
      ],
      'the results of all it waited for are there, in order',
    )
  },

  'children and the wait for them land together or not at all': async (h) => {
    const d = first(h)
    const job = await d.running('parent')
    await d.land(snooze(job, 1_000))
    await d.refuse('fence', 'a worker that lost the job cannot wait', waits(job, ['kid'], [child('kid', job)]))
    must(!(await d.exists('kid')), 'there is no child without a parent that waits')
    const other = await d.running('other')
    await d.add('taken', { id: 'taken' })
    await d.refuse('duplicate', 'one child that cannot be added', waits(other, ['taken'], [child('taken', other)]))
    has(await d.job(other), { state: 'active', pending: 0 }, 'a wait that was refused leaves no trace')
    same(await d.edges(other), [], 'a wait that was refused leaves no edges')
    const gone = await d.refuse(
      'missing',
      'a job cannot wait for a job that does not exist',
      waits(other, ['kid', 'missing'], [child('kid', other)]),
    )
    same(gone.id, 'missing', 'the refusal names the missing job')
    must(!(await d.exists('kid')), 'a refused wait leaves no child behind')
    await h.advance(31_000)
    await d.refuse('fence', 'a lease that is over cannot wait', waits(other, ['kid'], [child('kid', other)]))
  },

  'a wait for what has ended goes straight on, behind all others': async (h) => {
    const d = first(h)
    const done = await d.running('done')
    await d.land(complete(done, { result: 7 }))
    const job = await d.running('parent')
    const other = await d.add('parent')
    await d.land(waits(job, [done.id]))
    has(await d.job(job), { state: 'waiting', pending: 0, attempt: 0 }, 'a dependency that has ended is not waited for')
    same(ids(await d.claim(5)), [other.id, job.id], 'it takes a new place')
    same(
      await outcomes(d, job),
      [{ chain: done.id, state: 'ended', result: '7', error: undefined }],
      'the new edge has the result',
    )
  },

  'a wait for what has failed is broken and decided at once': async (h) => {
    const d = first(h)
    const bad = await d.running('bad')
    await d.land(fail(bad))
    for (const [policy, state] of [
      ['fail', 'failed'],
      ['ignore', 'waiting'],
      ['remove', undefined],
    ] as const) {
      const job = await d.running(`parent-${policy}`)
      const { now } = await d.commit({ groups: [waits(job, [{ on: bad.id, policy }])] })
      has(
        await d.job(job),
        { state: 'waiting-children', pending: 1, brokenAt: now, dueAt: now },
        'it is broken, and due',
      )
      await d.upkeep()
      if (state === undefined) must(!(await d.exists(job.id)), 'the policy `remove` removes it')
      else has(await d.job(job), { state, pending: 0 }, `the policy \`${policy}\` decides`)
    }
  },

  'a job waits for each chain once': async (h) => {
    const d = first(h)
    const early = await d.running('early')
    await d.add('parent', { id: 'p', after: [early] })
    await d.land(complete(early, { result: 'early' }))
    const job = await d.claimOne()
    const edges: NewEdge[] = [early.id, 'kid', 'kid'].map((on) => ({ on, policy: 'fail' }))
    await d.land(waits(job, edges, [child('kid', job)]))
    has(await d.job(job), { state: 'waiting-children', pending: 1 }, 'what it has waited for counts no more')
    same(
      (await d.edges(job)).map(({ chain, state }) => [chain, state]),
      [
        [early.id, 'ended'],
        ['kid', 'open'],
      ],
      'new edges come after the old ones, one for each chain',
    )
    await runAll(d, 'child')
    has(await d.job(job), { state: 'waiting', pending: 0 }, 'one end releases')
  },

  'an edge stores the result of the last job of its chain, and keeps it': async (h) => {
    const d = first(h)
    const head = await d.running('step')
    const parent = await d.add('parent', { after: [head], queue: 'other' })
    await d.land(
      complete(head, { result: 'not yet', continuation: insert('last', 'step', { chain: { id: head.id, index: 1 } }) }),
    )
    same(
      (await outcomes(d, parent))[0],
      { chain: head.id, state: 'open', result: undefined, error: undefined },
      'a chain that continues has no result yet',
    )
    await d.land(complete(await d.claimOne(), { result: { text: 'ž "\\' } }))
    const expected = [{ chain: head.id, state: 'ended', result: json({ text: 'ž "\\' }), error: undefined }]
    same(await outcomes(d, parent), expected, 'the result of the last job comes with its end')
    same((await d.edges(parent))[0]?.name, 'step', 'an edge has the name of the job that was to be waited for')
    const late = await d.add('late', { after: [head], queue: 'other' })
    same(await outcomes(d, late), expected, 'an edge that has ended from the start has the result as well')
    for (const id of [head.id, 'last']) await d.land(remove(await d.job(id)))
    same(await outcomes(d, parent), expected, 'it stays when the jobs of the chain are removed')
    const nothing = await d.running('nothing')
    const idle = await d.add('idle', { after: [nothing], queue: 'other' })
    await d.land(complete(nothing))
    same(
      (await outcomes(d, idle))[0],
      { chain: nothing.id, state: 'ended', result: undefined, error: undefined },
      'no result is none',
    )
  },

  'a result reaches dependents even if its job is removed in the same commit': async (h) => {
    const d = first(h)
    await d.add('child', { id: 'kid', keep: { completed: { deleteAfter: 0 } } })
    const kid = await d.claimOne()
    const parent = await d.add('parent', { after: [kid] })
    await d.land(complete(kid, { result: [1] }))
    must(!(await d.exists('kid')), 'the child is gone')
    same(
      await outcomes(d, parent),
      [{ chain: 'kid', state: 'ended', result: '[1]', error: undefined }],
      'its result is not',
    )
  },

  'an edge stores the error of its chain, without the stack and the causes': async (h) => {
    const d = first(h)
    const [bad, cut, gone] = [await d.running('bad'), await d.running('cut'), await d.running('gone')]
    const parent = await d.add('parent', { after: [bad, cut, gone], policy: 'ignore' })
    await d.land(fail(bad, { ...BOOM, stack: 'Error: boom\n  at home', cause: BOOM, errors: [BOOM] }))
    await d.land(cancel(cut))
    await d.land(remove(gone))
    const expected = (state: string): readonly unknown[] => [
      { chain: bad.id, state, result: undefined, error: { ...BOOM } },
      { chain: cut.id, state, result: undefined, error: undefined },
      { chain: gone.id, state, result: undefined, error: undefined },
    ]
    same(await outcomes(d, parent), expected('broken'), 'a failed chain has an error, and a cancelled one has none')
    const late = await d.add('late', { after: [bad, cut], policy: 'ignore' })
    same(await outcomes(d, late), expected('broken').slice(0, 2), 'an edge that is broken from the start has the same')
    await d.upkeep()
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'failures that are ignored count as ended')
    same(await outcomes(d, parent), expected('closed'), 'the errors stay on the edges')
  },

  'a broken edge whose chain is retried and ends well before upkeep decides has ended, once': async (h) => {
    const d = first(h)
    const [bad, good] = [await d.running('bad'), await d.running('good')]
    const parent = await d.add('parent', { after: [bad, good] })
    await d.land(fail(bad))
    const broken = await d.job(parent)
    await d.land(retry(await d.job(bad)))
    await d.land(complete(await d.claimOne({ names: ['bad'] }), { result: 'at last' }))
    const repaired = await d.job(parent)
    has(
      repaired,
      { state: 'waiting-children', pending: 1, brokenAt: undefined, dueAt: undefined },
      'nothing is broken any more',
    )
    must(repaired.fence > broken.fence, 'a decision made before is refused')
    await d.land(complete(good))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'each dependency counted once')
    same(
      (await outcomes(d, parent))[0],
      { chain: bad.id, state: 'ended', result: '"at last"', error: undefined },
      'its result is there',
    )
  },

  'a job with two broken edges stays broken when one of them is repaired': async (h) => {
    const d = first(h)
    const [a, b] = [await d.running('a'), await d.running('b')]
    const parent = await d.add('parent', { after: [a, b] })
    await d.commit({ groups: [fail(a), fail(b)] })
    const seen = await d.job(parent)
    await d.land(retry(await d.job(a)))
    await d.land(complete(await d.claimOne({ names: ['a'] })))
    const still = await d.job(parent)
    has(still, { state: 'waiting-children', pending: 1, brokenAt: seen.brokenAt }, 'the other one is still broken')
    await d.refuse('fence', 'a decision about both edges is stale', cancel(seen))
    await d.upkeep()
    has(await d.job(parent), { state: 'failed', pending: 0 }, 'and decides')
  },

  'a decided edge whose chain is retried and ends well has its result, and is not counted again': async (h) => {
    const d = first(h)
    const [bad, open] = [await d.running('bad'), await d.running('open')]
    const fatal = await d.add('fatal', { after: [bad] })
    const ignoring = await d.add('ignoring', { after: [bad, open], policy: 'ignore' })
    await d.land(fail(bad))
    await d.upkeep()
    await d.land(retry(await d.job(bad)))
    await d.land(complete(await d.claimOne({ names: ['bad'] }), { result: 'late' }))
    has(await d.job(fatal), { state: 'failed', pending: 0 }, 'what was decided stays so')
    has(await d.job(ignoring), { state: 'waiting-children', pending: 1 }, 'it does not count again')
    const expected = { chain: bad.id, state: 'ended', result: '"late"', error: undefined }
    for (const job of [fatal, ignoring]) same((await outcomes(d, job))[0], expected, 'but its result is there')
    await d.land(retry(await d.job(fatal)))
    has(await d.job(fatal), { state: 'waiting', pending: 0 }, 'a parent retried by hand runs with it')
    await d.land(complete(open))
    has(await d.job(ignoring), { state: 'waiting', pending: 0 }, 'the other one releases')
  },

  'a job that fails with all its siblings is decided when those are cancelled': async (h) => {
    const d = first(h)
    const [bad, open, apart] = [await d.running('bad'), await d.running('open'), await d.running('apart')]
    const after: NewEdge[] = [
      { on: bad.id, policy: 'fail-all' },
      { on: open.id, policy: 'ignore-all' },
      { on: apart.id, policy: 'fail' },
    ]
    const parent = await d.add('parent', { after })
    await d.land(fail(bad))
    await d.upkeep()
    has(
      await d.job(parent),
      { state: 'waiting-children', pending: 3 },
      'it stays due as long as a sibling is unfinished',
    )
    await d.land(cancel(open))
    await d.upkeep()
    has(
      await d.job(parent),
      { state: 'failed', pending: 1 },
      'then it fails, and an edge with another policy stays open',
    )
  },
})
