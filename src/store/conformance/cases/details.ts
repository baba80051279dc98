// store/conformance/cases/details.ts: what lies beside jobs.
import { same } from '../check.js'
import { LEASE, first, openEdge } from '../driver.js'
import { area } from '../harness.js'
import { complete, note, remove, stumble } from '../making.js'
import type { JobDetails } from '../../store.js'

const empty = (id: string): JobDetails => ({ id, edges: [], dependents: [], logs: [], steps: [] })

/** Edges and logs. */
export const details = area('details', {
  'edges are told in the order given, and dependents by the chain': async (h) => {
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
      'edges are told in the order in which they were given',
    )
    const dependents = (await d.details('a')).dependents.toSorted((x, y) => (x.dependent < y.dependent ? -1 : 1))
    same(
      dependents,
      [openEdge(other.id, 'a', 'child'), openEdge('p', 'a', 'child', 'remove')],
      'who depends on a chain is told',
    )
    same((await d.details(parent)).dependents, [], 'nobody depends on the last')
  },

  'jobs are answered in the order asked for, and empty where there is none': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    const { jobs, cells } = await h.store.details({ jobs: ['first-2', 'nobody', 'first-1'] })
    same(jobs, [empty('first-2'), empty('nobody'), empty('first-1')], 'jobs are answered in the order asked for')
    same(cells, [], 'cells are not told unless asked for')
    same(await h.store.details({}), { jobs: [], cells: [] }, 'nothing is answered with nothing')
  },

  'log lines are kept in order, with their time and attempt': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const one = await d.commit({ groups: [note(held, { logs: ['one', 'two'] }), note(held, { logs: ['three'] })] })
    await h.advance(1_000)
    await d.land(stumble(held, 0))
    await d.upkeep()
    const again = await d.claimOne()
    const two = await d.commit({ groups: [note(again, { logs: ['four', ''] })] })
    const expected = [
      { at: one.now, attempt: 1, line: 'one' },
      { at: one.now, attempt: 1, line: 'two' },
      { at: one.now, attempt: 1, line: 'three' },
      { at: two.now, attempt: 2, line: 'four' },
      { at: two.now, attempt: 2, line: '' },
    ]
    same((await d.details(held)).logs, expected, 'log lines are told in order')
    await d.land(complete(again))
    same((await d.details(held)).logs, expected, 'log lines outlive the end of their job')
    await d.land(remove(await d.job(held)))
    same((await d.details(held)).logs, [], 'log lines go with their job')
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
    await d.land(stumble(held, 1_000))
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
    await d.land({ ...move, fence: emptied.fence, to: 'waiting', set: { run: null } })
    same((await d.job(held)).runAt, undefined, 'null empties a date')
  },
})
