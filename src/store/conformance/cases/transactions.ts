// store/conformance/cases/transactions.ts: what is written with a transaction lands or vanishes with it.
import { has, must, present, same } from '../check.js'
import { ask, Driver, first } from '../driver.js'
import { area } from '../harness.js'
import type { Harness } from '../harness.js'
import { listening } from '../listening.js'
import { cancel, complete, insert } from '../making.js'
import type { Batch, Group, Store, Tx } from '../../store.js'

/** A batch of groups alone, by a writer of its own. */
function batch(writer: string, ...groups: readonly Group[]): Batch {
  return { writer, seq: 1, groups, renewals: [], asks: [] }
}

function transact<T>(store: Store, work: (tx: Tx) => Promise<T>): Promise<T> {
  const run = present(store.transact?.bind(store), 'a store that can do transactions has `transact`')
  return run(work)
}

async function rolledBack(store: Store, work: (tx: Tx) => Promise<void>): Promise<void> {
  const reason = new Error('rolled back')
  try {
    await transact(store, async (tx) => {
      await work(tx)
      throw reason
    })
  } catch (error) {
    must(error === reason, 'a transaction rejects with what its work threw')
    return
  }
  must(false, 'a transaction whose work throws is rolled back and rejects')
}

/** The user's transactions. */
export const transactions = area(
  'transactions',
  {
    'what is committed with a transaction is seen inside at once, and outside afterwards': async (h) => {
      const d = first(h)
      const answer = await transact(h.store, async (tx) => {
        const receipt = await h.store.commit(batch('tx', [insert('inside', 'work')]), tx)
        must(receipt.groups[0]?.ok === true, 'a group lands in a transaction')
        const [inside] = await h.store.get(['inside'], tx)
        same(inside?.state, 'waiting', 'a transaction sees what it wrote')
        same((await h.store.find({}, tx)).items.length, 1, 'a transaction finds what it wrote')
        same(await h.store.get(['inside']), [undefined], 'nobody else sees what is not committed')
        return 'answer'
      })
      same(answer, 'answer', 'a transaction answers what its work answered')
      has(await d.job('inside'), { state: 'waiting' }, 'what was committed is seen')
    },

    'what is rolled back leaves no trace': async (h) => {
      const d = first(h)
      const held = await d.running('work')
      const parent = await d.add('parent', { after: [held] })
      await listening(h.store, { events: true }, async (listener) => {
        await rolledBack(h.store, async (tx) => {
          const groups = [
            complete(held, { also: [insert('also', 'work')] }),
            [insert('k', 'work', { dedup: { key: 'k' } })],
          ]
          await h.store.commit(batch('tx', ...groups), tx)
        })
        same(await d.job(held), held, 'a settlement that was rolled back did not happen')
        same(await d.job(parent), parent, 'a release that was rolled back did not happen')
        must(!(await d.exists('also')), 'an insert that was rolled back did not happen')
        same(await listener.heard(d), [], 'what was rolled back is not told')
        await d.land(insert('k2', 'work', { dedup: { key: 'k' } }))
        const again = await h.store.commit(batch('tx', [insert('again', 'work')]))
        must(again.groups[0]?.ok === true && (await d.exists('again')), 'a number that was rolled back was not used')
      })
    },

    'what a transaction committed is told after it, and wakes others': async (h) => {
      const d = first(h)
      await listening(h.store, { events: true }, async (listener) => {
        await transact(h.store, async (tx) => {
          await h.store.commit(batch('tx', [insert('told', 'work')]), tx)
          same(listener.events, [], 'nothing is told before it is durable')
        })
        const events = await listener.heard(d)
        same(
          events.map(({ id, type }) => [id, type]),
          [['told', 'waiting']],
          'what a transaction committed is told',
        )
        must(listener.work.has('mill'), 'what a transaction committed wakes workers')
      })
    },

    'a refused group does not spoil its transaction': async (h) => {
      const d = first(h)
      await d.add('work', { id: 'taken' })
      await transact(h.store, async (tx) => {
        const { groups } = await h.store.commit(batch('tx', [insert('taken', 'work')], [insert('free', 'work')]), tx)
        same(
          groups.map(({ ok }) => ok),
          [false, true],
          'each group has a verdict of its own',
        )
      })
      must(await d.exists('free'), 'the transaction commits what landed')
    },

    'a settlement in a transaction is fenced': async (h) => {
      const d = first(h)
      const held = await d.running('work')
      await d.land(cancel(held))
      await transact(h.store, async (tx) => {
        const { groups } = await h.store.commit(batch('tx', complete(held)), tx)
        must(groups[0]?.ok === false && groups[0].why === 'fence', 'a transaction is no way around a fence')
      })
    },

    'a row held by an open transaction makes its group busy, and no other': async (h: Harness) => {
      const d = first(h)
      const other = new Driver(await h.peer(), 'other')
      const held = await d.running('work')
      const outside = () =>
        other.commit({
          groups: [cancel(held), [insert('free', 'work', { queue: 'free' })]],
          asks: [ask(1, { queues: ['free'] })],
        })
      const sent = await transact(h.store, async (tx) => {
        await h.store.commit(batch('tx', complete(held)), tx)
        const answer = outside()
        if (h.rowLocks === true) {
          const [locked, free] = (await answer).groups
          must(locked?.ok === false && locked.why === 'busy', 'a locked row makes its group busy')
          must(free?.ok === true, 'a locked row does not hold back the other groups of a batch')
        }
        return { answer }
      })
      const { groups, asks } = await sent.answer
      must(groups[0]?.ok === false && groups[1]?.ok === true, 'the locked group alone is refused')
      must(['busy', 'fence'].includes(groups[0].why), 'a group that met an open transaction is told so')
      same(asks[0]?.length, 1, 'asks are answered beside a busy group')
      has(await d.job(held), { state: 'completed' }, 'the transaction that came first stands')
    },
  },
  'transactions',
)
