// What JSON carries is taken wherever a value is stored, on every store; what it does not is refused with the place.
import { describe, expect, it } from 'vitest'
import { Worker, phases } from 'millrace'
import type { AnyJobs, Handlers, Queue } from 'millrace'
import { kinds, stores } from '../stores.js'
import { closing, event, newQueue } from '../setup.js'

const make = stores()

/** An optional field that is not set, as types allow it, and integers that are not safe and yet exact. */
const given = { kept: 1, left: undefined, deep: [{ left: undefined }], large: 2 ** 60, huge: 1e300 }
const stored = { kept: 1, deep: [{}], large: 2 ** 60, huge: 1e300 }

function run(queue: Queue, handlers: Handlers<AnyJobs>): Worker<AnyJobs, readonly []> {
  return closing(new Worker(queue, handlers, { logger: false }))
}

describe.each(kinds)('on %s', (kind) => {
  it('keys that are undefined are left out, and large integers kept, wherever a value is stored', async () => {
    const queue = newQueue({ store: await make(kind) })
    run(queue, {
      plain: async (job, ctx) => {
        await ctx.progress(given)
        const step: unknown = await ctx.step('one', () => given)
        return { ...given, seen: job.data, step }
      },
      phased: phases({ first: () => given, second: (_job, ctx) => ({ ...given, first: ctx.phaseResult('first') }) }),
      signalled: (_job, ctx) => ctx.waitForSignal('go'),
      retried: async (job, ctx) => {
        const step: unknown = await ctx.step('one', () => given)
        if (job.attempt === 1) throw new Error('once more')
        return step
      },
    })
    const plain = await queue.add('plain', given)
    expect(plain.data).toEqual(stored)
    expect(plain.data).not.toHaveProperty('left')
    expect(await plain.result()).toEqual({ ...stored, seen: stored, step: stored })
    expect((await plain.refresh()).progress).toEqual(stored)
    expect(await (await queue.add('phased')).result()).toEqual({ ...stored, first: stored })
    const signalled = await queue.add('signalled')
    await queue.signal(signalled.id, 'go', given)
    expect(await signalled.result()).toEqual(stored)
    expect(await (await queue.add('retried', given, { backoff: 1 })).result()).toEqual(stored)
    const [bulk] = await queue.addBulk([{ name: 'none', data: given }])
    await bulk!.update({ data: { ...given, more: undefined } })
    expect((await queue.get(bulk!.id))?.data).toEqual(stored)
  })

  it('a result that JSON cannot represent fails the job for good, and the error says that its work was done', async () => {
    const queue = newQueue({ store: await make(kind) })
    run(queue, {
      date: () => ({ orders: [{ paid: new Date() }] }),
      phased: phases({ first: () => ({ paid: new Date() }), second: () => {} }),
      step: async (_job, ctx) => ctx.step('pay', () => ({ paid: new Date() as never })),
    })
    for (const [name, message] of [
      ['date', 'The handler has done its work, but what it returned cannot be stored: result.orders[0].paid is a Date'],
      ['phased', "Phase 'first' has done its work, but what it returned cannot be stored: result.paid is a Date"],
      ['step', "Step 'pay' has done its work, but what it returned cannot be stored: result.paid is a Date"],
    ] as const) {
      const failed = event(queue, 'failed')
      await queue.add(name)
      const { error, attempt } = await failed
      expect(error).toMatchObject({ code: 'INVALID_DATA', message: expect.stringContaining(message) as string })
      expect(attempt).toBe(1)
    }
  })

  it('a line of the log with what stores refuse is cleaned, as errors are', async () => {
    const queue = newQueue({ store: await make(kind) })
    run(queue, { n: (_job, ctx) => ctx.log('a\0b\ud800c😀') })
    const added = await queue.add('n', undefined, { attempts: 1 })
    await added.result()
    expect((await added.logs()).map(({ line }) => line)).toEqual(['a\u{fffd}b\u{fffd}c😀'])
  })
})
