// conformance/cases/broken.ts: cases on dependencies that fail, are cancelled or are removed, and on their dependents.
import type { Change } from '../../job/change.js'
import type { Edge, JobRecord } from '../../job/job.js'
import { has, must, present, same } from '../check.js'
import { first, ids, second } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import { cancel, complete, fail, insert, remove, retry, waits } from '../changes.js'

const badOutcomes: Readonly<Record<string, (job: JobRecord) => readonly Change[]>> = {
  failed: fail,
  cancelled: cancel,
  removed: remove,
}

function states(edges: readonly Edge[]): readonly Edge['state'][] {
  return edges.map(({ state }) => state)
}

/** Retries a job by hand. If another change has moved it, decides again on the current record. */
async function retryByHand(d: Driver, of: JobRecord): Promise<void> {
  const stale = await d.send(retry(of))
  if (!stale.ok) await d.land(retry(await d.job(of)))
}

/** Cases of broken dependencies. */
export const broken = area('broken dependencies', {
  ...Object.fromEntries(
    Object.entries(badOutcomes).map(([how, end]) => [
      `a dependent is due at once when what it waits for is ${how}`,
      async (h) => {
        const d = first(h)
        const child = await d.running('child')
        const parent = await d.add('parent', { after: [child] })
        const { now } = await d.commit({ groups: [end(child)] })
        const marked = await d.job(parent)
        has(marked, { state: 'waiting-children', pending: 1, brokenAt: now, dueAt: now }, 'it is broken, and due now')
        must(marked.fence > parent.fence, 'a decision made before it broke is refused: its fence goes up')
        same(
          (await d.edges(parent)).map(({ state }) => state),
          ['broken'],
          'the edge is broken until decided upon',
        )
        const { jobs } = await h.store.due({ queues: ['mill'], except: [], limit: 10 })
        same(ids(jobs), [parent.id], 'a broken job is due')
        await d.upkeep()
        has(await d.job(parent), { state: 'failed', pending: 0, brokenAt: undefined }, 'the policy `fail` fails it')
        same((await d.job(parent)).error?.code, 'DEPENDENCY_FAILED', 'the error names the reason')
        same(
          (await d.edges(parent)).map(({ state }) => state),
          ['closed'],
          'a decided edge is closed',
        )
      },
    ]),
  ),

  'a chain whose last job is cancelled or removed has not ended well': async (h) => {
    const d = first(h)
    for (const [how, end] of Object.entries(badOutcomes)) {
      const head = await d.running(`head-${how}`)
      const parent = await d.add('parent', { after: [head], queue: 'parents' })
      const chain = { id: head.id, index: 1 }
      await d.land(complete(head, { continuation: insert(`last-${how}`, `last-${how}`, { chain }) }))
      await d.land(end(await d.claimOne({ names: [`last-${how}`] })))
      await d.upkeep(['parents'])
      has(await d.job(parent), { state: 'failed' }, `a chain whose last job is ${how} has not ended well`)
    }
  },

  'an ignored failure counts as an end': async (h) => {
    const d = first(h)
    const [bad, good] = [await d.running('bad'), await d.running('good')]
    const parent = await d.add('parent', { after: [bad, good], policy: 'ignore' })
    await d.land(fail(bad))
    has(await d.job(parent), { state: 'waiting-children', pending: 2 }, 'a broken dependency counts until decided upon')
    await d.upkeep()
    has(await d.job(parent), { state: 'waiting-children', pending: 1, dueAt: undefined }, 'then it counts no more')
    same(await d.upkeep(), [], 'a decided job is not due again')
    await d.land(complete(good))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'the rest releases')
  },

  'a job whose only dependency failed and is ignored runs': async (h) => {
    const d = first(h)
    const bad = await d.running('bad')
    const now = await d.add('now', { after: [bad], policy: 'ignore' })
    const later = await d.add('later', { after: [bad], policy: 'ignore', run: { in: 60_000 } })
    await d.land(fail(bad))
    await d.upkeep()
    has(await d.job(now), { state: 'waiting', pending: 0 }, 'a decision that leaves nothing open releases')
    has(await d.job(later), { state: 'delayed', pending: 0 }, 'a decision that leaves nothing open leaves the date')
  },

  'a dependent with the policy `remove` is removed': async (h) => {
    const d = first(h)
    const bad = await d.running('bad')
    const parent = await d.add('parent', { after: [bad], policy: 'remove' })
    const grand = await d.add('grand', { after: [parent] })
    await d.land(fail(bad))
    await d.upkeep()
    must(!(await d.exists(parent.id)), 'the policy `remove` removes it')
    has(await d.job(grand), { state: 'waiting-children', pending: 1 }, 'its dependent is broken in turn')
    await d.upkeep()
    has(await d.job(grand), { state: 'failed' }, 'one level a commit')
  },

  'two dependencies that fail are decided together': async (h) => {
    const d = first(h)
    const [a, b, c] = [await d.running('a'), await d.running('b'), await d.running('c')]
    const parent = await d.add('parent', { after: [a, b, c], policy: 'ignore' })
    await d.commit({ groups: [fail(a), fail(b)] })
    await d.upkeep()
    has(await d.job(parent), { pending: 1, state: 'waiting-children' }, 'all broken edges are decided together')
    await d.land(complete(c))
    has(await d.job(parent), { pending: 0, state: 'waiting' }, 'the last one releases')
  },

  'a decision made before another dependency broke is refused': async (h) => {
    const d = first(h)
    const [a, b] = [await d.running('a'), await d.running('b')]
    const parent = await d.add('parent', {
      after: [
        { on: a.id, policy: 'ignore' },
        { on: b.id, policy: 'fail' },
      ],
    })
    await d.land(fail(a))
    const seen = await d.job(parent)
    await d.land(fail(b))
    await d.refuse('fence', 'a decision sees all that broke', cancel(seen))
    await d.upkeep()
    has(await d.job(parent), { state: 'failed', pending: 0 }, 'one fatal edge fails the job')
  },

  'an edge to a chain that failed or was cancelled is broken from the start, and due at once': async (h) => {
    const d = first(h)
    for (const [how, end] of Object.entries({ failed: fail, cancelled: cancel })) {
      const child = await d.running(`child-${how}`)
      await d.land(end(child))
      const receipt = await d.commit({ groups: [[insert(`fatal-${how}`, 'parent', { after: [child] })]] })
      const fatal = await d.job(`fatal-${how}`)
      has(
        fatal,
        { state: 'waiting-children', pending: 1, dueAt: receipt.now },
        `a chain that ${how} breaks a new dependent`,
      )
      const ignoring = await d.add('parent', { after: [child], policy: 'ignore' })
      await d.upkeep()
      has(await d.job(fatal), { state: 'failed' }, 'upkeep decides on a new dependent that is broken')
      has(await d.job(ignoring), { state: 'waiting', pending: 0 }, 'a new dependent that ignores the failure runs')
    }
  },

  'a failed dependent cannot be retried by hand while its dependency is failed, cancelled or removed': async (h) => {
    const d = first(h)
    for (const [how, end] of Object.entries(badOutcomes)) {
      const good = await d.running(`good-${how}`)
      const child = await d.running(`child-${how}`)
      const parent = await d.add('parent', { after: [good, child], queue: 'parents' })
      await d.land(complete(good))
      await d.land(end(child))
      await d.upkeep(['parents'])
      const failed = await d.job(parent)
      const verdict = await d.refuse('broken', 'a retry does not run with the failure of a dependency', retry(failed))
      same([verdict.id, verdict.job], [child.id, undefined], 'the refusal names the chain')
      same(await d.job(parent), failed, 'a refused retry leaves the job as it was')
      same(states(await d.edges(parent)), ['ended', 'closed'], 'and its edges')
    }
  },

  'a failed dependent retried by hand waits for what was retried before it, and runs with its result': async (h) => {
    const d = first(h)
    const [child, other] = [await d.running('child'), await d.running('other')]
    const parent = await d.add('parent', { after: [child, other] })
    await d.commit({ groups: [fail(child), complete(other, { result: 'first' })] })
    await d.upkeep()
    await d.land(retry(await d.job(child)))
    await d.land(retry(await d.job(parent)))
    const waiting = await d.job(parent)
    has(
      waiting,
      { state: 'waiting-children', pending: 1, brokenAt: undefined, dueAt: undefined, error: undefined, attempt: 0 },
      'the job waits again for a chain that continues',
    )
    const edges = await d.edges(parent)
    same(states(edges), ['open', 'ended'], 'its edge is open again')
    same(edges[0]?.error, undefined, 'and has forgotten the failure')
    same(await d.upkeep(), [], 'upkeep has nothing to decide')
    await d.land(complete(await d.claimOne({ names: ['child'] }), { result: 'second' }))
    const done = await d.job(parent)
    has(done, { state: 'waiting', pending: 0 }, 'its end releases the job, in the same commit')
    must(done.fence > waiting.fence, 'a release takes the fence up')
    same(
      (await d.edges(parent)).map(({ result }) => result),
      ['"second"', '"first"'],
      'the results are there',
    )
  },

  'a dependent that was started over fails again if what it waits for fails again': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    for (let round = 0; round < 2; round++) {
      await d.land(fail(round === 0 ? child : await d.claimOne({ names: ['child'] })))
      await d.upkeep()
      has(await d.job(parent), { state: 'failed', pending: 0 }, 'each failure is decided upon')
      await d.commit({ groups: [retry(await d.job(child)), retry(await d.job(parent))] })
      has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'a retry waits once more')
    }
  },

  'retries of a dependent and its dependencies in one batch see each other in order': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    const grand = await d.add('grand', { after: [parent] })
    await d.land(fail(child))
    await d.upkeep()
    await d.upkeep()
    const [c, p, g] = [await d.job(child), await d.job(parent), await d.job(grand)]
    has(g, { state: 'failed' }, 'one level a commit')
    const { groups } = await d.commit({ groups: [retry(g), retry(p), retry(c), retry(p), retry(g)] })
    same(
      groups.map((verdict) => (verdict.ok ? 'landed' : `${verdict.why} ${verdict.id}`)),
      [`broken ${parent.id}`, `broken ${child.id}`, 'landed', 'landed', 'landed'],
      'a retry before that of its dependency is refused',
    )
    for (const name of ['child', 'parent', 'grand']) await d.land(complete(await d.claimOne({ names: [name] })))
    has(await d.job(grand), { state: 'completed', attempt: 1 }, 'each runs once, after what it waits for')
  },

  'a retried dependent waits for the end of a chain that continues': async (h) => {
    const d = first(h)
    const head = await d.running('head')
    const parent = await d.add('parent', { after: [head] })
    const next = insert('next', 'next', { chain: { id: head.id, index: 1 } })
    await d.land(complete(head, { continuation: next }))
    await d.land(fail(await d.claimOne({ names: ['next'] })))
    await d.upkeep()
    const verdict = await d.refuse('broken', 'the end of a chain is that of its last job', retry(await d.job(parent)))
    same(verdict.id, head.id, 'a chain is named by its first job')
    await d.land(retry(await d.job('next')))
    await d.land(retry(await d.job(parent)))
    has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'the last job of the chain runs again')
    await d.land(complete(await d.claimOne({ names: ['next'] }), { result: 7 }))
    has(await d.job(parent), { state: 'waiting' }, 'and ends the chain')
    same((await d.edges(parent))[0]?.result, '7', 'with its result')
  },

  'a retried dependent ignores a failed dependency by its policy, and waits for one that was retried': async (h) => {
    const d = first(h)
    const bad = await d.running('bad')
    const parent = await d.add('parent', { after: [bad], policy: 'ignore' })
    await d.land(fail(bad))
    await d.upkeep()
    await d.land(fail(await d.claimOne({ names: ['parent'] })))
    await d.land(retry(await d.job(parent)))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'an ignored failure was decided upon')
    same(states(await d.edges(parent)), ['closed'], 'and stays so')
    await d.land(fail(await d.claimOne({ names: ['parent'] })))
    await d.land(retry(await d.job(bad)))
    await d.land(retry(await d.job(parent)))
    has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'a dependency that runs again is waited for')
    await d.land(complete(await d.claimOne({ names: ['bad'] })))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'its end releases')
  },

  'a job that waited for children of its own waits for them again when it is retried': async (h) => {
    const d = first(h)
    const parent = await d.running('parent')
    await d.land(waits(parent, ['own'], [insert('own', 'own')]))
    await d.land(fail(await d.claimOne({ names: ['own'] })))
    await d.upkeep()
    await d.refuse('broken', 'its child is failed', retry(await d.job(parent)))
    await d.land(retry(await d.job('own')))
    await d.land(retry(await d.job(parent)))
    has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'it waits as it did')
    await d.land(complete(await d.claimOne({ names: ['own'] })))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'and runs')
  },

  'a retry and the end of its dependency at the same moment never leave a job waiting for ever': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 25; round++) {
      const child = await d.running(`child-${round}`)
      const parent = await d.add('parent', { after: [child], queue: 'parents' })
      await d.land(fail(child))
      await d.upkeep(['parents'])
      await d.land(retry(await d.job(child)))
      const again = await d.claimOne({ names: [`child-${round}`] })
      const failed = await d.job(parent)
      const well = round % 2 === 0
      const [, verdict] = await Promise.all([d.land(well ? complete(again) : fail(again)), other.send(retry(failed))])
      await d.upkeep(['parents'])
      const { state } = await d.job(parent)
      if (well) same([verdict.ok, state], [true, 'waiting'], 'it is released by whichever comes last')
      else same(state, 'failed', 'it fails again, or was never started over')
    }
  },

  'a failed dependent retried by hand waits for what is still open': async (h) => {
    const d = first(h)
    const [bad, open] = [await d.running('bad'), await d.running('open')]
    const parent = await d.add('parent', { after: [bad, open] })
    await d.land(fail(bad))
    await d.upkeep()
    has(await d.job(parent), { state: 'failed', pending: 1 }, 'an open dependency is not decided with a broken one')
    await d.refuse('broken', 'but neither is the broken one forgotten', retry(await d.job(parent)))
    await d.land(retry(await d.job(bad)))
    await d.land(retry(await d.job(parent)))
    has(await d.job(parent), { state: 'waiting-children', pending: 2 }, 'it waits for both')
    await d.land(complete(open))
    await d.land(complete(await d.claimOne({ names: ['bad'] })))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'which release it')
  },

  'a dependent retried by hand is not stuck when its last dependency ended meanwhile': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    await d.land(cancel(parent))
    const cancelled = await d.job(parent)
    await d.land(complete(child))
    has(await d.job(parent), { state: 'cancelled' }, 'an end does not revive a cancelled dependent')
    await retryByHand(d, cancelled)
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'a dependency that has ended is not waited for')
  },

  'a dependent retried by hand is decided on by the current state of a dependency that broke meanwhile': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    const ignoring = await d.add('ignoring', { after: [child], policy: 'ignore' })
    await d.commit({ groups: [cancel(parent), cancel(ignoring)] })
    await d.land(fail(child))
    has(await d.job(parent), { state: 'cancelled', pending: 1 }, 'a failure does not touch a cancelled dependent')
    await d.refuse('broken', 'a failed dependency is not waited for', retry(await d.job(parent)))
    await d.land(retry(await d.job(ignoring)))
    await d.upkeep()
    has(await d.job(ignoring), { state: 'waiting', pending: 0 }, 'a failure that is ignored is decided upon')
    await d.land(retry(await d.job(child)))
    await d.land(retry(await d.job(parent)))
    has(
      await d.job(parent),
      { state: 'waiting-children', pending: 1, brokenAt: undefined, dueAt: undefined },
      'a dependency that runs again is not broken any more',
    )
    await d.land(complete(await d.claimOne({ names: ['child'] })))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'and counts once')
  },

  'a failed dependency that is retried and completes counts once': async (h) => {
    const d = first(h)
    const [bad, good] = [await d.running('bad'), await d.running('good')]
    const parent = await d.add('parent', { after: [bad, good], policy: 'ignore' })
    await d.land(fail(bad))
    await d.upkeep()
    await d.land(retry(await d.job(bad)))
    await d.land(complete(await d.claimOne({ names: ['bad'] })))
    has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'a decided edge does not count again')
    await d.land(complete(good))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'the other dependency releases')
  },

  'a new edge to a failed job that was retried waits for it': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    await d.land(fail(child))
    await d.land(retry(await d.job(child)))
    const parent = await d.add('parent', { after: [child] })
    has(parent, { state: 'waiting-children', pending: 1, dueAt: undefined }, 'a retried job has not ended')
    await d.land(complete(await d.claimOne()))
    has(await d.job(parent), { state: 'waiting' }, 'its end releases')
  },

  'a failure and a new edge that meet never leave a job waiting for ever': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 25; round++) {
      const child = await d.running(`child-${round}`)
      const [, parent] = await Promise.all([
        d.land(fail(child)),
        other.add('parent', { after: [child], queue: 'parents' }),
      ])
      await d.upkeep(['parents'])
      has(await d.job(parent), { state: 'failed' }, 'a race between a failure and a new edge is settled')
    }
  },

  'one failure breaks many dependents': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    await d.addMany(60, 'parent', { after: [child] })
    await d.land(fail(child))
    same((await d.upkeep()).length, 60, 'every dependent is due')
    same(present((await d.counts())['parent'], 'the dependents'), { failed: 60 }, 'every dependent fails')
  },
})
