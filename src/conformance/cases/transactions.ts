// conformance/cases/transactions.ts: cases on transactions: what is written in one is committed or rolled back with it.
import { has, must, present, refuses, same } from '../check.js'
import { ask, Driver, first } from '../driver.js'
import { area } from '../harness.js'
import type { Harness } from '../harness.js'
import { withListener } from '../listener.js'
import { cancel, complete, insert } from '../changes.js'
import type { Batch, Group, Store, Tx } from '../../store/store.js'

/** A lease so short that a store whose clock cannot be advanced can wait for its end. */
const SHORT = 300

/** A batch of groups only, by its own writer. */
function batch(writer: string, ...groups: readonly Group[]): Batch {
  return { writer, seq: 1, groups, renewals: [], asks: [] }
}

function transact<T>(store: Store, work: (tx: Tx) => Promise<T>, within?: Tx): Promise<T> {
  const run = present(store.transact?.bind(store), 'a store that can do transactions has `transact`')
  return run(work, within)
}

/** Runs work in a transaction, or in a savepoint of one, that is rolled back. */
async function rolledBack(store: Store, work: (tx: Tx) => Promise<void>, within?: Tx): Promise<void> {
  const reason = new Error('rolled back')
  try {
    await transact(
      store,
      async (tx) => {
        await work(tx)
        throw reason
      },
      within,
    )
  } catch (error) {
    must(error === reason, 'a transaction rejects with what its work threw')
    return
  }
  must(false, 'a transaction whose work throws is rolled back and rejects')
}

/** Sends groups in a transaction; all of them must be applied. */
async function land(store: Store, tx: Tx, ...groups: readonly Group[]): Promise<void> {
  const receipt = await store.commit(batch('tx', ...groups), tx)
  for (const verdict of receipt.groups) must(verdict.ok, 'a group that should land in a transaction was refused')
}

/** Which of these jobs a transaction sees. */
async function seen(store: Store, tx: Tx, ...ids: readonly string[]): Promise<readonly string[]> {
  return (await store.get(ids, tx)).flatMap((job) => (job === undefined ? [] : [job.id]))
}

/** Cases of transactions. */
export const transactions = area(
  'transactions',
  {
    'what is committed with a transaction is seen inside at once, and outside afterwards': async (h) => {
      const d = first(h)
      const result = await transact(h.store, async (tx) => {
        const receipt = await h.store.commit(batch('tx', [insert('inside', 'work')]), tx)
        must(receipt.groups[0]?.ok === true, 'a group lands in a transaction')
        const [inside] = await h.store.get(['inside'], tx)
        same(inside?.state, 'waiting', 'a transaction sees what it wrote')
        same((await h.store.find({}, tx)).items.length, 1, 'a transaction finds what it wrote')
        if (h.readsWait !== true) {
          same(await h.store.get(['inside']), [undefined], 'other handles do not see uncommitted changes')
        }
        return 'result'
      })
      same(result, 'result', 'a transaction returns the result of its work')
      has(await d.job('inside'), { state: 'waiting' }, 'what was committed is seen')
    },

    'a holder whose lease expires while a transaction is open cannot settle in it': async (h) => {
      const d = first(h)
      await d.add('work')
      const { asks } = await d.commit({ asks: [ask(1, { lease: SHORT })] })
      const held = present(asks[0]?.[0], 'a claim is given the waiting job')
      await transact(h.store, async (tx) => {
        // A read, so that the transaction has begun in the database as well.
        same(await seen(h.store, tx, held.id), [held.id], 'a transaction sees the job')
        await h.advance(SHORT)
        const { groups } = await h.store.commit(batch('tx', complete(held)), tx)
        const [verdict] = groups
        const why = verdict?.ok === false ? verdict.why : 'landed'
        same(why, 'fence', 'leases are judged by the clock of the commit, not of the transaction')
      })
    },

    'what is rolled back leaves no trace': async (h) => {
      const d = first(h)
      const held = await d.running('work')
      const parent = await d.add('parent', { after: [held] })
      const before = await d.counts()
      await withListener(h.store, { events: true }, async (listener) => {
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
        same(await d.counts(), before, 'what was rolled back is not counted')
        same(await listener.received(d), [], 'rolled back changes are not published')
        await d.land(insert('k2', 'work', { dedup: { key: 'k' } }))
        const again = await h.store.commit(batch('tx', [insert('again', 'work')]))
        must(again.groups[0]?.ok === true && (await d.exists('again')), 'a number that was rolled back was not used')
      })
    },

    'changes of a transaction are published after it commits, and wake others': async (h) => {
      const d = first(h)
      await withListener(h.store, { events: true }, async (listener) => {
        await transact(h.store, async (tx) => {
          await h.store.commit(batch('tx', [insert('published', 'work')]), tx)
          same(listener.events, [], 'nothing is published before it is durable')
        })
        const events = await listener.received(d)
        same(
          events.map(({ id, type }) => [id, type]),
          [['published', 'waiting']],
          'changes of a transaction are published',
        )
        must(listener.work.has('mill'), 'what a transaction committed wakes workers')
      })
    },

    'another handle is notified of the changes of a transaction, revoked leases included': async (h) => {
      const d = first(h)
      const held = await d.running('work')
      const peer = await h.peer()
      await withListener(peer, {}, async (listener) => {
        await new Driver(peer, 'peer').commit({}) // from here on every handle knows that there is a watcher
        await transact(h.store, (tx) => land(h.store, tx, cancel(held), [insert('next', 'work')]))
        await listener.until(() => listener.revoked.length > 0, 'a lease that a transaction revoked is announced')
        same(
          listener.revoked.map(({ id, fence, reason }) => [id, fence, reason]),
          [[held.id, held.fence, 'cancelled']],
          'a revocation has the lease and the reason',
        )
        await listener.until(() => listener.work.has('mill'), 'work that a transaction added is announced')
      })
    },

    'a transaction sees what lies beside its jobs, and its own counts': async (h) => {
      await transact(h.store, async (tx) => {
        await land(h.store, tx, [insert('child', 'work')], [insert('parent', 'work', { after: ['child'] })])
        const { jobs } = await h.store.details({ jobs: ['child'] }, tx)
        same(
          jobs[0]?.dependents.map(({ dependent }) => dependent),
          ['parent'],
          'a transaction sees the edges that it wrote',
        )
        const [tally] = await h.store.tally(['mill'], tx)
        same(tally?.names['work']?.waiting, 1, 'a transaction counts what it wrote')
      })
    },

    'what several commits of one transaction build on each other lands together': async (h) => {
      const d = first(h)
      await transact(h.store, async (tx) => {
        await land(h.store, tx, [insert('first', 'work')])
        await land(h.store, tx, [insert('second', 'work', { after: ['first'] })])
        const [job] = await h.store.get(['first'], tx)
        await land(h.store, tx, cancel(present(job, 'a transaction sees what it wrote')))
      })
      has(
        await d.job('first'),
        { state: 'cancelled' },
        'a later commit of a transaction moves what an earlier one wrote',
      )
      must((await d.job('second')).brokenAt !== undefined, 'and its dependent is broken')
      const third = await d.add('work')
      same(
        (await d.claim(5)).map(({ id }) => id),
        [third.id],
        'what is added after a transaction has a place of its own',
      )
    },

    'transactions that run at once all land': async (h) => {
      const d = first(h)
      const one = (id: string) => transact(h.store, (tx) => land(h.store, tx, [insert(id, 'work')]))
      const outside = d.add('work', { id: 'outside' })
      await Promise.all([one('a'), one('b'), one('c'), outside])
      same(await d.counts(), { work: { waiting: 4 } }, 'nothing that was committed at the same time is lost')
      same((await d.claim(5)).length, 4, 'and each job is claimed once')
    },

    'a savepoint that is kept lands with its transaction': async (h) => {
      const d = first(h)
      await transact(h.store, async (tx) => {
        await land(h.store, tx, [insert('before', 'work')])
        const result = await transact(
          h.store,
          async (inner) => {
            await land(h.store, inner, [insert('within', 'work')])
            return 'result'
          },
          tx,
        )
        same(result, 'result', 'a savepoint returns the result of its work')
        same(await seen(h.store, tx, 'before', 'within'), ['before', 'within'], 'a savepoint that is kept is seen')
      })
      same(await d.counts(), { work: { waiting: 2 } }, 'a savepoint that is kept lands with its transaction')
    },

    'a savepoint that is rolled back leaves no trace, and the rest of its transaction lands': async (h) => {
      const d = first(h)
      const held = await d.running('work')
      await withListener(h.store, { events: true }, async (listener) => {
        await transact(h.store, async (tx) => {
          await land(h.store, tx, [insert('before', 'work')])
          await rolledBack(
            h.store,
            async (inner) => {
              const groups = [complete(held), [insert('within', 'work', { dedup: { key: 'k' }, queue: 'made' })]]
              await land(h.store, inner, ...groups)
              same(await seen(h.store, inner, 'within'), ['within'], 'a savepoint sees what it wrote')
            },
            tx,
          )
          same(await seen(h.store, tx, 'before', 'within'), ['before'], 'a savepoint that was rolled back is gone')
          await land(h.store, tx, [insert('after', 'work', { dedup: { key: 'k' }, queue: 'made' })])
        })
        same(await d.job(held), held, 'a settlement in a savepoint that was rolled back did not happen')
        const events = await listener.received(d)
        same(
          events.map(({ id, type }) => [id, type]),
          [
            ['before', 'waiting'],
            ['after', 'waiting'],
          ],
          'changes that a savepoint rolled back are not published',
        )
      })
      same(
        await d.counts(),
        { work: { waiting: 1, active: 1 } },
        'changes that a savepoint rolled back are not counted',
      )
      same(await d.counts('made'), { work: { waiting: 1 } }, 'changes that a savepoint rolled back are not counted')
      await d.land(complete(held))
    },

    'a savepoint goes with the savepoint or the transaction that it is in': async (h) => {
      const d = first(h)
      const keep = (id: string, within: Tx) =>
        transact(h.store, (inner) => land(h.store, inner, [insert(id, 'work')]), within)
      await transact(h.store, async (tx) => {
        await rolledBack(h.store, (outer) => keep('inner', outer), tx)
        await keep('kept', tx)
      })
      await rolledBack(h.store, (tx) => keep('whole', tx))
      must(!(await d.exists('inner')), 'a savepoint goes with the one around it')
      must(!(await d.exists('whole')), 'a savepoint goes with its transaction')
      must(await d.exists('kept'), 'one that was rolled back does not spoil those after it')
    },

    'what is no transaction, or one that has ended, is refused': async (h) => {
      let kept: Tx
      await transact(h.store, async (tx) => {
        kept = tx
      })
      const calls = (tx: Tx): Readonly<Record<string, () => Promise<unknown>>> => ({
        commit: () => h.store.commit(batch('tx', [insert('late', 'work')]), tx),
        get: () => h.store.get(['late'], tx),
        find: () => h.store.find({}, tx),
        transact: () => transact(h.store, async () => {}, tx),
      })
      for (const [name, call] of Object.entries(calls(kept))) {
        await refuses(call, 'TRANSACTION_ENDED', `a transaction that has ended is refused: ${name}`)
      }
      for (const wrong of [{}, null, 'tx', 42]) {
        for (const [name, call] of Object.entries(calls(wrong))) {
          await refuses(call, 'INVALID_TRANSACTION', `what is no transaction is refused: ${name}`)
        }
      }
      must(!(await first(h).exists('late')), 'what was refused was not written')
    },

    'a transaction that has ended or was broken off is refused also while the next one is open': async (h) => {
      const d = first(h)
      let ended: Tx
      let broken: Tx
      let resume = (): void => {}
      let started = (): void => {}
      const resumed = new Promise<void>((resolve) => (resume = resolve))
      const inside = new Promise<void>((resolve) => (started = resolve))
      let abandoned: Promise<void> | undefined
      await transact(h.store, async (tx) => {
        ended = tx
      })
      await rolledBack(h.store, async (tx) => {
        const at = async (inner: Tx): Promise<void> => {
          broken = inner
          started()
          await resumed
          throw new Error('late')
        }
        abandoned = transact(h.store, at, tx).catch(() => {})
        await inside
      })
      const write = (id: string, tx: Tx) => () => h.store.commit(batch('tx', [insert(id, 'work')]), tx)
      await transact(h.store, (next) =>
        transact(
          h.store,
          async (savepoint) => {
            await refuses(write('ended', ended), 'TRANSACTION_ENDED', 'one that has ended is refused beside the next')
            await refuses(write('broken', broken), 'TRANSACTION_ENDED', 'one that was broken off is refused')
            await land(h.store, savepoint, [insert('kept', 'work')])
            resume()
            await abandoned
          },
          next,
        ),
      )
      must(await d.exists('kept'), 'the end of what was broken off undoes nothing of the next transaction')
      must(!(await d.exists('ended')) && !(await d.exists('broken')), 'what was refused was not written')
    },

    'a refused group does not spoil its transaction': async (h) => {
      const d = first(h)
      await d.add('work', { id: 'taken' })
      await transact(h.store, async (tx) => {
        const { groups } = await h.store.commit(batch('tx', [insert('taken', 'work')], [insert('free', 'work')]), tx)
        same(
          groups.map(({ ok }) => ok),
          [false, true],
          'each group has its own verdict',
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
        const receipt = outside()
        if (h.rowLocks === true) {
          const [locked, free] = (await receipt).groups
          must(locked?.ok === false && locked.why === 'busy', 'a locked row makes its group busy')
          must(free?.ok === true, 'a locked row does not hold back the other groups of a batch')
        }
        return { receipt }
      })
      const { groups, asks } = await sent.receipt
      must(groups[0]?.ok === false && groups[1]?.ok === true, 'the locked group alone is refused')
      must(['busy', 'fence'].includes(groups[0].why), 'a group that needs a row of an open transaction is refused')
      same(asks[0]?.length, 1, 'claims are applied beside a busy group')
      has(await d.job(held), { state: 'completed' }, 'the changes of the transaction that came first are kept')
    },
  },
  'transactions',
)
