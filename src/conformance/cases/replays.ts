// conformance/cases/replays.ts: cases on replays: a batch that is sent again is applied once and returns the same receipt.
import type { Batch, Group } from '../../store/store.js'
import { refuses, same } from '../check.js'
import { ask, Driver, first, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { withListener } from '../listener.js'
import { complete, refusedChange, insert, note, put, remove } from '../changes.js'

/** How often two copies of a batch are sent at once: enough that a store that does not serialize them fails. */
const ROUNDS = 16

/** Cases of replays, which follow a lost receipt. */
export const replays = area('replays', {
  'a replay returns an equal receipt, claimed jobs included': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    const held = await d.claimOne()
    const receipt = await d.commit({
      groups: [complete(held, { result: 1 }), [insert('new', 'work')], [refusedChange()]],
      renewals: [{ id: held.id, fence: held.fence, lease: LEASE, started: true }],
      asks: [ask(2), ask(5)],
    })
    same(await d.replay(), receipt, 'a replay returns the receipt of the original')
    await h.advance(5_000)
    same(await d.replay(), receipt, 'a replay returns the receipt of the original, however late')
  },

  'a replay of large jobs returns an equal receipt': async (h) => {
    const d = first(h)
    const data = 'x'.repeat(1_000_000)
    for (let n = 0; n < 5; n++) await d.add('work', { data })
    const groups = [1, 2, 3, 4].map((n) => [insert(`new-${n}`, 'work', { data })])
    const flow = [insert('child', 'work', { data }), insert('parent', 'work', { data, after: ['child'] })]
    const receipt = await d.commit({ groups: [...groups, flow, [insert('child', 'work', { data })]], asks: [ask(5)] })
    same(receipt.asks[0]?.length, 5, 'five jobs of one megabyte are claimed at once')
    same(await d.replay(), receipt, 'a replay returns the receipt of the original, whatever the size of its jobs')
  },

  'a replay through another handle returns the same receipt': async (h) => {
    const d = first(h)
    await d.add('work')
    const receipt = await d.commit({ groups: [[insert('new', 'work')]], asks: [ask(1)] })
    const peer = await h.peer()
    same(await peer.commit(d.last), receipt, 'every handle knows the last batch of a writer')
  },

  'a batch that is sent again while its first copy is under way is applied once': async (h) => {
    const d = first(h)
    const peer = await h.peer()
    // The first job of a name may be refused as busy where two handles add it at once.
    await d.land(remove(await d.add('work')))
    const parts: Pick<Batch, 'groups' | 'asks'>[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const inserts = (kind: string): Group[] =>
        Array.from({ length: 20 }, (_, n) => [insert(`${kind}-${round}-${n}`, 'work')])
      parts.push({ groups: inserts('plain'), asks: [] })
      parts.push({ groups: [...inserts('mixed'), [put(`cell-${round}`, 1, 0)]], asks: [ask(5)] })
      for (let claims = 0; claims < 5; claims++) parts.push({ groups: [], asks: [ask(1)] })
    }
    let seq = 0
    for (const each of parts) {
      const batch = { writer: 'twice', seq: ++seq, renewals: [], ...each }
      const [receipt, again] = await Promise.all([h.store.commit(batch), peer.commit(batch)])
      same(again, receipt, 'both copies return the same receipt')
      same(
        receipt.groups.every(({ ok }) => ok),
        true,
        'the second copy is not refused for what the first one wrote',
      )
    }
    same(
      await d.counts(),
      { work: { active: ROUNDS * 10, waiting: ROUNDS * 30 } },
      'a batch that is sent twice at once is applied once',
    )
  },

  'a replay applies nothing twice': async (h) => {
    const d = first(h)
    await d.addMany(4, 'work')
    const held = await d.claimOne()
    const waits = await d.add('waits', { queue: 'other', after: [held, 'first-2'] })
    await withListener(h.store, { events: true }, async (listener) => {
      await d.commit({
        groups: [
          note(held, { progress: 10, logs: ['one'] }),
          complete(held, { result: 1, also: [insert('also', 'also', { queue: 'other' })] }),
          [put('cell', 1, 0)],
        ],
        asks: [ask(1)],
      })
      const last = d.last
      const state = async (): Promise<unknown> => ({
        jobs: (await h.store.find({})).items,
        details: await h.store.details({ jobs: [held.id, waits.id], cells: ['cell'] }),
        tally: await h.store.tally(),
      })
      const before = await state()
      await h.store.commit(last)
      await h.store.commit(last)
      same(await state(), before, 'a replay applies nothing')
      same((await d.job(waits)).pending, 1, 'a replayed settlement releases its dependents once')
      const events = await listener.received(d)
      same(events.filter(({ type }) => type === 'completed').length, 1, 'a replay publishes nothing again')
      same(events.filter(({ type }) => type === 'progress').length, 1, 'a replay publishes no progress again')
    })
  },

  'a replay returns the same receipt even if the jobs have changed since': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.add('work')
    const receipt = await d.commit({ asks: [ask(1)] })
    const [job] = receipt.asks[0] ?? []
    if (job !== undefined) await other.land(complete(job))
    same(await d.replay(), receipt, 'a receipt is stored, not computed again')
  },

  'a replay of the claims alone returns the jobs that the original claimed': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    const held = await d.claimOne()
    const receipt = await d.commit({
      groups: [complete(held), [insert('new', 'work')], [refusedChange()]],
      renewals: [{ id: held.id, fence: held.fence, lease: LEASE, started: true }],
      asks: [ask(1)],
    })
    const alone = { ...d.last, groups: [], renewals: [] }
    const peer = await h.peer()
    for (const handle of [h.store, peer]) {
      const { asks } = await handle.commit(alone)
      same(asks, receipt.asks, 'claims are replayed without the groups of their batch')
    }
    same(
      await d.counts(),
      { work: { completed: 1, active: 1, waiting: 2 } },
      'a replay of the claims alone claims nothing',
    )
  },

  'claims alone, under the number of a batch that was never applied, keep its groups from being applied': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    const original = { writer: 'lost', seq: 1, groups: [[insert('lost', 'work')]], renewals: [], asks: [ask(1)] }
    const { asks } = await h.store.commit({ ...original, groups: [] })
    same(asks[0]?.length, 1, 'claims alone are applied')
    const late = await h.store.commit(original)
    same(late.asks, asks, 'the original is treated as a replay')
    same(await d.exists('lost'), false, 'a late original applies nothing')
    same(await d.counts(), { work: { active: 1, waiting: 1 } }, 'a late original claims nothing')
  },

  'a batch with a lower number is refused': async (h) => {
    const d = first(h)
    await d.add('work')
    const old = d.last
    await d.add('work')
    await refuses(() => h.store.commit(old), 'WRITER_BEHIND', 'a late original cannot land after its successor')
    const late = { ...old, groups: [[insert('late', 'work')]], asks: [ask(5)] }
    await refuses(() => h.store.commit(late), 'WRITER_BEHIND', 'a number is used once')
    same(await d.exists('late'), false, 'a batch refused for its number applies nothing')
    same(await d.counts(), { work: { waiting: 2 } }, 'a batch refused for its number claims nothing')
    await d.add('work')
  },

  'writers are independent of each other': async (h) => {
    const a = first(h)
    const b = new Driver(h.store, 'independent')
    await a.addMany(2, 'work')
    await a.add('work')
    const mine = await b.commit({ groups: [[insert('b', 'work')]] })
    same(mine.groups.length, 1, 'a new writer begins with 1, whatever others have sent')
    await a.add('work')
    same(await b.replay(), mine, "another writer's batches do not touch what this one last sent")
  },
})
