// conformance/cases/hints.ts: cases on hints: work, due times and revoked leases.
import type { Change, Move } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import { cancelReason } from '../../job/lifecycle.js'
import { must, present, same } from '../check.js'
import { first, ids, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { Listener, withListener } from '../listener.js'
import { cellKey } from '../../store/settings.js'
import { cancel, complete, refusedChange, fail, put, remove, failAndRetry, update } from '../changes.js'
import type { Revoked } from '../../store/store.js'

function withoutLease(change: Move): Move {
  return { ...change, held: false }
}

/** Completes a job without its lease. */
function completeElsewhere(job: JobRecord): readonly Change[] {
  return complete(job).map((change) => (change.kind === 'move' ? withoutLease(change) : change))
}

const revocations: Readonly<Record<Exclude<Revoked['reason'], 'lease-lost'>, (job: JobRecord) => readonly Change[]>> = {
  cancelled: cancel,
  removed: remove,
  'completed-elsewhere': completeElsewhere,
}

/** Cases of hints, which wake workers. */
export const hints = area('hints', {
  'work that can be claimed is announced by its queue': async (h) => {
    const d = first(h)
    await withListener(h.store, {}, async (listener) => {
      await d.add('work')
      await listener.until(() => listener.work.has('mill'), 'an added job is announced')
      await d.add('work', { queue: 'other' })
      await listener.until(() => listener.work.has('other'), 'an added job is announced by its own queue')
    })
  },

  'a job released, reaped, promoted or due is announced as work': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    await d.add('parent', { after: [child], queue: 'released' })
    const stalling = await d.running('stalls', { queue: 'reaped' })
    await d.add('delayed', { run: { in: LEASE }, queue: 'delayed' })
    await withListener(h.store, {}, async (listener) => {
      await d.land(complete(child))
      await listener.until(() => listener.work.has('released'), 'a released job is announced')
      await h.advance(LEASE)
      same(
        ids((await h.store.due({ queues: ['reaped'], except: [], limit: 1 })).jobs),
        [stalling.id],
        'a lease has expired',
      )
      await d.upkeep(['reaped', 'delayed'])
      await listener.until(() => listener.work.has('reaped'), 'a reaped job is announced')
      await listener.until(() => listener.work.has('delayed'), 'a job whose delay is over is announced')
    })
  },

  'work that a pause held back is announced when it is lifted': async (h) => {
    const d = first(h)
    await d.land(put(cellKey.pause('mill'), { all: true, names: [] }, 0))
    await d.add('work')
    await withListener(h.store, {}, async (listener) => {
      await d.land(put(cellKey.pause('mill'), { all: false, names: [] }, 1))
      await listener.until(() => listener.work.has('mill'), 'a pause that is lifted announces what it held back')
    })
  },

  'work that a limit held back is announced when the limit is raised, or a lease ends': async (h) => {
    const d = first(h)
    await d.land(put(cellKey.limit('mill'), { concurrency: 1, by: 'queue' }, 0))
    await d.addMany(5, 'work')
    let held = await d.claimOne()
    const woken = async (by: () => Promise<unknown>, duty: string): Promise<void> => {
      await withListener(h.store, {}, async (listener) => {
        await by()
        await listener.until(() => listener.work.has('mill'), duty)
      })
    }
    await woken(() => d.land(complete(held)), 'a settlement that makes room announces work')
    held = await d.claimOne()
    await d.land(cancel(held))
    await woken(
      () => d.commit({ renewals: [{ id: held.id, fence: held.fence, lease: 0, started: true }] }),
      'a lease that is given up announces work',
    )
    await woken(
      () => d.land(put(cellKey.limit('mill'), { concurrency: 2, by: 'queue' }, 1)),
      'a limit that is raised announces work',
    )
  },

  'a due time earlier than known ones is announced': async (h) => {
    const d = first(h)
    await withListener(h.store, {}, async (listener) => {
      const announced = (queue: string, at: number | undefined): boolean =>
        listener.notices.some((notice) => notice.due.some((due) => due.queue === queue && due.at === at))
      const delayed = await d.add('work', { run: { in: 60_000 } })
      await listener.until(() => announced('mill', delayed.runAt), 'a new delay is announced')
      const held = await d.running('work', { queue: 'other' })
      await d.land(failAndRetry(held, 5_000))
      const retrying = await d.job(held)
      await listener.until(() => announced('other', retrying.runAt), 'a backoff is announced')
      await d.land(update(delayed, { run: { in: 1_000 } }))
      const sooner = await d.job(delayed)
      await listener.until(() => announced('mill', sooner.runAt), 'a date that was moved is announced')
      const child = await d.running('child')
      const parent = await d.add('parent', { after: [child], queue: 'parents' })
      await d.land(fail(child))
      const broken = await d.job(parent)
      await listener.until(() => announced('parents', broken.dueAt), 'a job that broke is announced')
    })
  },

  ...Object.fromEntries(
    Object.entries(revocations).map(([reason, revoke]) => [
      `a holder is notified that its lease was revoked: ${reason}`,
      async (h) => {
        const d = first(h)
        const other = await second(h)
        await withListener(h.store, {}, async (listener) => {
          const held = await d.running('work')
          await listener.until(() => listener.work.has('mill'), 'a watcher of hints gets a work hint')
          await other.land(revoke(await other.job(held)))
          await listener.until(() => listener.revoked.length > 0, 'a revoked lease is announced')
          const revoked = { id: held.id, fence: held.fence, worker: 'miller', reason: reason as Revoked['reason'] }
          same(
            listener.revoked.map((revocation) => ({ ...revocation })),
            [revoked],
            'a revocation has the lease and the reason',
          )
        })
      },
    ]),
  ),

  'a holder whose job was cancelled is notified of the reason': async (h) => {
    const d = first(h)
    const other = await second(h)
    await withListener(h.store, {}, async (listener) => {
      const held = await d.running('work')
      await listener.until(() => listener.work.has('mill'), 'a watcher of hints gets a work hint')
      await other.land(cancel(await other.job(held), 'withdrawn, "at last" ☃'))
      await listener.until(() => listener.revoked.length > 0, 'a revoked lease is announced')
      const [revocation] = listener.revoked
      same(
        [revocation?.reason, revocation?.cancelReason],
        ['cancelled', 'withdrawn, "at last" ☃'],
        'the reason goes with it',
      )
      same(cancelReason((await d.job(held)).error), 'withdrawn, "at last" ☃', 'and is kept with the job')
    })
  },

  'a commit that revokes many leases notifies of each, or that some were left out': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.addMany(200, 'work')
    const held = await d.claim(200)
    await withListener(h.store, {}, async (listener) => {
      await d.commit({}) // from here on every handle knows that there is a watcher
      await other.commit({ groups: held.map((job) => cancel(job)) })
      await listener.until(
        () => listener.revoked.length === held.length || listener.notices.some(({ missed }) => missed === true),
        'the holders of all revoked leases can find out',
      )
    })
  },

  'a holder whose lease expired is notified that it was lost': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      const held = await d.running('work')
      await h.advance(LEASE)
      await d.upkeep()
      await listener.until(() => listener.revoked.length > 0, 'a lease that was lost is announced')
      const revoked = { id: held.id, fence: held.fence, worker: 'miller', reason: 'lease-lost' as const }
      same(
        listener.revoked.map((revocation) => ({ ...revocation })),
        [revoked],
        'a revocation has the lease and the reason',
      )
    })
  },

  'a holder is not notified of its own settlements': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      await d.land(complete(await d.running('a')))
      await d.land(fail(await d.running('b')))
      await d.land(failAndRetry(await d.running('c'), 1_000))
      await d.land(cancel(await d.add('d')))
      await listener.received(d)
      same(listener.revoked, [], 'a lease that its holder gave up was not revoked')
    })
  },

  'a refused group revokes nothing': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      const held = await d.running('work')
      await d.refuse('missing', 'a group with one impossible change is refused', cancel(held), refusedChange())
      await d.refuse('missing', 'a group with one impossible change is refused', remove(held), refusedChange())
      await listener.received(d)
      same(listener.revoked, [], 'a refused change revokes no lease')
    })
  },

  'watchers of hints alone get no events': async (h) => {
    const d = first(h)
    await withListener(h.store, {}, (hints) =>
      withListener(h.store, { events: true }, async (listener) => {
        await d.land(complete(await d.running('work')))
        await listener.received(d)
        await d.add('work', { queue: 'last' })
        await hints.until(() => hints.work.has('last'), 'a watcher of hints gets a work hint')
        same(hints.all, [], 'events go only to watchers that request them')
        must(
          hints.notices.every(({ gap }) => !gap),
          'a watcher of hints misses nothing',
        )
      }),
    )
  },

  'a watcher of hints that throws affects no other watcher': async (h) => {
    const d = first(h)
    const throwing = new Listener(h.store, {}, () => {
      throw new Error('a listener may throw')
    })
    try {
      await withListener(h.store, {}, async (listener) => {
        const job = present(await d.add('work'), 'a job')
        await listener.until(() => listener.work.has(job.queue), 'the other watchers get the notice')
      })
    } finally {
      throwing.stop()
    }
  },
})
