// conformance/cases/refusals.ts: cases on verdicts and what they carry, and on refused groups, which leave no trace.
import { has, must, present, same } from '../check.js'
import { ask, first, ids, renewal, second } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import { withListener } from '../listener.js'
import { cancel, complete, refusedChange, fail, insert, note, put, remove, update } from '../changes.js'

/** Everything that can be read from a store. */
async function everything(d: Driver): Promise<unknown> {
  const { items } = await d.store.find({})
  const { jobs, cells } = await d.store.details({ jobs: ids(items), cellsUnder: '' })
  const due = await d.store.due({ queues: ['mill', 'other'], except: [], limit: 100 })
  return { items, jobs, cells, due: due.jobs, tally: await d.store.tally() }
}

/** Cases of refusals. */
export const refusals = area('refusals', {
  'a change of a job that is not there is refused as missing': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(remove(held))
    for (const changes of [
      complete(held),
      cancel(held),
      note(held, { progress: 1 }),
      remove(held),
      update(held, { data: '1' }),
    ]) {
      const verdict = await d.refuse('missing', 'a removed job takes no change', changes)
      same(verdict.id, held.id, 'a refusal as missing names the job')
      same(verdict.job, undefined, 'a refusal as missing carries no job')
    }
    const verdict = await d.renew(held)
    must(!verdict.ok && verdict.why === 'missing' && verdict.id === held.id, 'a removed job is not renewed')
  },

  'a taken id is refused as duplicate with the existing job': async (h) => {
    const d = first(h)
    const existing = await d.add('work', { id: 'mine', data: 1 })
    const verdict = await d.refuse(
      'duplicate',
      'an id is taken once',
      insert('mine', 'other', { queue: 'other', data: 2 }),
    )
    same(verdict.id, 'mine', 'a refusal as duplicate names the existing job')
    same(verdict.job, existing, 'a refusal as duplicate carries the existing job')
    same(await d.job('mine'), existing, 'the existing job is unchanged')
  },

  'an id is taken also by a finished job, and free again once that is removed': async (h) => {
    const d = first(h)
    await d.land(complete(await d.running('work', { id: 'mine' })))
    const verdict = await d.refuse('duplicate', 'a finished job keeps its id', insert('mine', 'work'))
    has(
      present(verdict.job, 'the refusal carries the existing job'),
      { state: 'completed' },
      'a finished job is unchanged',
    )
    await d.land(remove(await d.job('mine')))
    await d.land(insert('mine', 'work'))
  },

  'two inserts of one id in a group are refused together': async (h) => {
    const d = first(h)
    await d.refuse('duplicate', 'an id is taken once in a group', insert('twin', 'work'), insert('twin', 'work'))
    must(!(await d.exists('twin')), 'neither of two inserts of one id is left behind')
  },

  'a refusal names the change that was refused, by its index in the group': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const gone = await d.running('work')
    await d.land(remove(gone))
    const taken = await d.add('work', { id: 'taken' })
    await d.land(put('cell', '1', 0))
    const twice = insert('twin', 'work')
    for (const [index, why, group] of [
      [0, 'duplicate', [insert(taken.id, 'work'), insert('a', 'work')]],
      [2, 'duplicate', [insert('a', 'work'), insert('b', 'work'), insert(taken.id, 'work'), insert('c', 'work')]],
      [1, 'duplicate', [twice, twice, insert('a', 'work')]],
      [
        2,
        'missing',
        [insert('a', 'work'), insert('b', 'work', { after: ['a'] }), insert('c', 'work', { after: ['none'] })],
      ],
      [2, 'duplicate', [...complete(held), insert(taken.id, 'work')]],
      [1, 'missing', [insert('a', 'work'), ...complete(gone)]],
      [1, 'fence', [note(held, { progress: 1 }), ...complete({ ...held, fence: held.fence - 1 })]],
      [1, 'version', [insert('a', 'work'), put('cell', '2', 0)]],
      [
        3,
        'duplicate',
        [put('cell', '2', 1), note(held, { progress: 1 }), insert('a', 'work'), insert(taken.id, 'work')],
      ],
    ] as const) {
      const verdict = await d.refuse(why, `change ${index} is refused as ${why}`, group.flat())
      same(verdict.change, index, `a refusal as ${why} names its change`)
    }
    const receipt = await d.commit({ groups: [[insert(taken.id, 'work')]], renewals: [renewal(gone)] })
    const indexes = [...receipt.groups, ...receipt.renewals].map((verdict) => (verdict.ok ? undefined : verdict.change))
    same(indexes, [0, 0], 'a group of one change and a renewal have the index 0')
  },

  'a refusal for a full backlog names the insert that was one too many': async (h) => {
    const d = first(h)
    await d.limit({ backlog: 2, groups: { a: { backlog: 1 } } })
    const inserts = ['one', 'two', 'three'].map((id) => insert(id, 'work'))
    same((await d.refuse('full', 'a queue takes two', inserts)).change, 2, 'the third is one too many')
    const held = [insert('one', 'work', { group: 'a' }), insert('two', 'work', { group: 'a' })]
    same((await d.refuse('full', 'a group takes one', held)).change, 1, 'the second is one too many')
  },

  'two handles that add one id at the same moment: exactly one lands': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 20; round++) {
      const verdicts = await Promise.all([
        d.send([insert(`id-${round}`, 'work')]),
        other.send([insert(`id-${round}`, 'work')]),
      ])
      same(verdicts.filter(({ ok }) => ok).length, 1, 'an id is taken by exactly one of two adds')
      const refused = verdicts.find((verdict) => !verdict.ok)
      must(refused?.ok === false && refused.why === 'duplicate', 'the other add is refused as duplicate')
      same(refused.job?.id, `id-${round}`, 'the refusal of the other add carries the existing job')
    }
  },

  'an edge to a job that is not there is refused as missing': async (h) => {
    const d = first(h)
    const verdict = await d.refuse('missing', 'a dependency must exist', insert('late', 'work', { after: ['missing'] }))
    same(verdict.id, 'missing', 'a refusal as missing names the dependency')
    must(!(await d.exists('late')), 'a job with a missing dependency is not added')
  },

  'an edge to a job inserted later in the group is refused as missing': async (h) => {
    const d = first(h)
    const group = [insert('parent', 'work', { after: ['child'] }), insert('child', 'work')]
    await d.refuse('missing', 'a group is applied in order', group)
    same(await d.store.get(['parent', 'child']), [undefined, undefined], 'a refused group inserts nothing')
  },

  'a queue at the bound of its backlog refuses inserts as full': async (h) => {
    const d = first(h)
    await d.limit({ backlog: 3 })
    await d.add('work')
    await d.add('work', { run: { in: 60_000 } })
    await d.add('work', { after: ['first-1'] })
    const verdict = await d.refuse(
      'full',
      'waiting, delayed and dependent jobs fill the backlog',
      insert('fourth', 'work'),
    )
    same(verdict.id, 'fourth', 'a refusal as full names the job that did not fit')
    await d.land(insert('elsewhere', 'work', { queue: 'other' }))
    const held = await d.claimOne()
    await d.refuse('full', 'a group that overflows is refused whole', insert('x', 'work'), insert('y', 'work'))
    must(!(await d.exists('x')), 'a group that overflows leaves no trace')
    await d.land(insert('fourth', 'work'))
    await d.land(fail(held))
    await d.refuse('full', 'a claimed job has left the backlog already', insert('fifth', 'work'))
  },

  'a group refused at its last change leaves no trace at all': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    const idle = await d.add('idle')
    await d.land(put('setting', 'old', 0))
    await d.lifetime()
    await withListener(h.store, { events: true }, async (listener) => {
      await listener.received(d)
      const before = await everything(d)
      await d.refuse(
        'missing',
        'a group with one impossible change is refused',
        insert('new', 'new', { dedup: { key: 'k' }, after: [idle] }),
        insert('later', 'new', { run: { in: 5_000 }, queue: 'other', dedup: { key: 'w', window: 60_000 } }),
        note(child, { progress: 50, logs: ['half'] }),
        complete(child, { result: 'done', also: [insert('also', 'new')] }),
        cancel(idle),
        put('setting', 'new', 1, [{ type: 'paused', queue: 'mill' }]),
        put('another', 1, 0),
        refusedChange(),
      )
      same(await everything(d), before, 'a refused group leaves no trace')
      same(await listener.received(d), [], 'a refused group publishes nothing')
    })
    await d.land(insert('key', 'new', { dedup: { key: 'k' } }))
    await d.land(insert('window', 'new', { dedup: { key: 'w' } }))
    await d.land(complete(child))
    has(await d.job(parent), { state: 'waiting' }, 'a refused release leaves the edge open for the next')
  },

  'a refused group does not affect the other groups of its batch': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const { groups, asks } = await d.commit({
      groups: [
        [insert('a', 'work')],
        [insert('b', 'work'), refusedChange()],
        complete(held),
        [refusedChange('x')],
        [insert('c', 'work')],
      ],
      asks: [ask(10)],
    })
    same(
      groups.map(({ ok }) => ok),
      [true, false, true, false, true],
      'each group has its own verdict',
    )
    has(await d.job(held), { state: 'completed' }, 'a group between refused ones lands')
    same(
      asks[0]?.map(({ id }) => id),
      ['a', 'c'],
      'a claim sees applied groups, and no refused one',
    )
  },

  'groups see the ones before them in their batch': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: { key: 'k' } })
    const { groups } = await d.commit({
      groups: [
        complete(held),
        [insert('next', 'work', { dedup: { key: 'k' } })],
        [insert('third', 'work', { dedup: { key: 'k' } })],
        [insert('after', 'work', { after: ['next'] })],
        [put('cell', 1, 0)],
        [put('cell', 2, 1)],
        cancel(held),
      ],
    })
    const seen = groups.map((verdict) => (verdict.ok ? 'ok' : verdict.why))
    same(seen, ['ok', 'ok', 'duplicate', 'ok', 'ok', 'ok', 'fence'], 'each group sees the ones before it')
    const third = groups[2]
    must(third?.ok === false && third.job?.id === 'next', 'a key freed and taken in one batch is held by the taker')
  },

  'changes see the ones before them in their group': async (h) => {
    const d = first(h)
    const held = await d.running('work', { keep: { completed: { deleteAfter: 0 } } })
    await d.land(complete(held))
    must(!(await d.exists(held.id)), 'a job that is not kept ends and goes in one group')
    const inserted = await d.land(insert('child', 'work'), insert('parent', 'work', { after: ['child'] }))
    same(
      inserted.map(({ state }) => state),
      ['waiting', 'waiting-children'],
      'a group may wait for what it inserted',
    )
  },

  'an applied group returns the jobs that it inserted, in order and as they are after the group': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const waits = insert('waits', 'work', { after: [held] })
    const inserted = await d.land(insert('a', 'work'), waits, complete(held, { also: [insert('b', 'work')] }))
    same(ids(inserted), ['a', 'waits', 'b'], 'inserted jobs are returned in order')
    same(inserted, await h.store.get(['a', 'waits', 'b']), 'inserted jobs are returned as they are after the group')
    has(
      present(inserted[1], 'three jobs'),
      { state: 'waiting' },
      'a job released in its own group is returned as released',
    )
  },

  'an empty batch and an empty group land': async (h) => {
    const d = first(h)
    const empty = await d.commit({})
    same([empty.writer, empty.seq], ['first', 1], 'a receipt names its writer and number')
    const { groups } = await d.commit({ groups: [[]] })
    same(groups, [{ ok: true, inserted: [] }], 'a group of no changes lands')
  },
})
