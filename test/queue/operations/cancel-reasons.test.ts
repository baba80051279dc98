// The reason given to cancel: it reaches the handler's signal, the event, explain, result() and webhooks, on every store.
import { describe, expect, it } from 'vitest'
import { JobAbort, Queue, Worker } from 'millrace'
import { webhooks } from 'millrace/webhooks'
import type { JobContext, Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { kinds, stores } from '../../stores.js'
import { newSchema, sharedServer } from '../../stores/postgres/server/shared.js'
import { addActive, closing, event, mailbox, newQueue } from '../../setup.js'
import { freshFolder } from '../../stores/sqlite/folder.js'
import { receiver } from '../../features/webhooks/receiver.js'

const make = stores()
const path = freshFolder()

/** Resolves with what the signal of a handler aborts with. */
function aborted(ctx: JobContext): Promise<JobAbort> {
  return new Promise((resolve) =>
    ctx.signal.addEventListener('abort', () => resolve(ctx.signal.reason!), { once: true }),
  )
}

/** A worker whose handlers run until their signals abort. */
function waiting(queue: Queue): { next: () => Promise<JobAbort> } {
  const reported = mailbox<JobAbort>()
  const handler = async (_job: unknown, ctx: JobContext): Promise<void> => reported.put(await aborted(ctx))
  closing(new Worker(queue, handler, { logger: false, concurrency: 5 }))
  return reported
}

describe.each(kinds)('the reason of a cancellation, on %s', (kind) => {
  it('reaches the signal of the handler, the event, explain and who waits for the result', async () => {
    const queue = newQueue({ store: await make(kind) })
    const reported = waiting(queue)
    const cancelled = event(queue, 'cancelled')
    const added = await addActive(queue, 'n')
    const ended = added.result().catch((error: unknown) => error)
    expect(await queue.cancel(added.id, { reason: 'the order was withdrawn' })).toBe(true)
    const reason = await reported.next()
    expect(reason).toBeInstanceOf(JobAbort)
    expect(reason).toMatchObject({ reason: 'cancelled', cancelReason: 'the order was withdrawn' })
    expect(reason.message).toContain('the order was withdrawn')
    expect(await cancelled).toMatchObject({ id: added.id, reason: 'the order was withdrawn' })
    expect(await cancelled).not.toHaveProperty('error')
    const { text, reasons } = await queue.explain(added.id)
    expect(reasons).toMatchObject([{ why: 'finished', state: 'cancelled', reason: 'the order was withdrawn' }])
    expect(text).toContain('the order was withdrawn')
    expect(await ended).toMatchObject({ code: 'JOB_CANCELLED', details: { reason: 'the order was withdrawn' } })
  })

  it('reaches all jobs that match, their children, and the job at which a chain stands', async () => {
    const queue = newQueue({ store: await make(kind) })
    const reported = waiting(queue)
    await addActive(queue, 'a')
    await addActive(queue, 'b')
    expect(await queue.cancel({ state: 'active' }, { reason: 'by filter', cascade: true })).toBe(2)
    expect([(await reported.next()).cancelReason, (await reported.next()).cancelReason]).toEqual([
      'by filter',
      'by filter',
    ])
    await addActive(queue, 'c')
    expect(await queue.cancel({ name: 'c' }, { reason: 'all of c' })).toBe(1)
    expect((await reported.next()).cancelReason).toBe('all of c')
    const own = await addActive(queue, 'd')
    await own.cancel({ reason: 'by its handle' })
    expect((await reported.next()).cancelReason).toBe('by its handle')
    const chain = await addActive(queue, 'e')
    await queue.chain(chain.id).cancel({ reason: 'with its chain' })
    expect((await reported.next()).cancelReason).toBe('with its chain')
  })

  it('is absent where none was given, and gone when the job is started over', async () => {
    const queue = newQueue({ store: await make(kind) })
    const reported = waiting(queue)
    const first = await addActive(queue, 'n')
    await first.cancel({ reason: 'once' })
    await reported.next()
    const active = event(queue, 'active')
    await first.retry()
    await active
    const cancelled = event(queue, 'cancelled')
    await first.cancel()
    expect((await reported.next()).cancelReason).toBeUndefined()
    expect(await cancelled).not.toHaveProperty('reason')
    expect((await queue.explain(first.id)).reasons[0]).not.toHaveProperty('reason')
  })

  it('is sent to the webhook of the job, and bounded', async () => {
    const hook = await receiver()
    const webhook = webhooks({ url: hook.url, secret: 'a secret that nobody knows', allowPrivate: true })
    const queue = closing(new Queue('work', { store: await make(kind), logger: false, webhook }))
    closing(new Worker(queue, () => {}, { logger: false }))
    const added = await queue.add('n', 1, { delay: '1h' })
    for (const reason of ['', 'x'.repeat(501), 5 as never]) {
      await expect(queue.cancel(added.id, { reason })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
      await expect(added.cancel({ reason })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    await queue.cancel(added.id, { reason: 'a\0b' })
    expect(JSON.parse((await hook.next()).body)).toMatchObject({
      type: 'job.cancelled',
      data: { error: { code: 'JOB_CANCELLED', message: 'a\u{fffd}b' } },
    })
  })
})

describe('the reason of a cancellation by another process', () => {
  it.each<[string, () => Promise<[Store, Store]>]>([
    ['SQLite', () => Promise.resolve([sqlite(path('shared.db')), sqlite(path('shared.db'))])],
    [
      'PostgreSQL',
      async () => {
        const [url, schema] = [await sharedServer(), newSchema()]
        return [postgres(url, { schema }), postgres(url, { schema })]
      },
    ],
  ])('reaches the handler, on %s', async (_kind, both) => {
    const [ours, theirs] = await both()
    const queue = newQueue({ store: closing(ours) })
    const other = newQueue({ store: closing(theirs) })
    const reported = waiting(queue)
    const added = await addActive(queue, 'n')
    await other.cancel(added.id, { reason: 'from elsewhere' })
    expect((await reported.next()).cancelReason).toBe('from elsewhere')
  })
})
