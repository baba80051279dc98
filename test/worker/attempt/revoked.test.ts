// A revoked lease aborts the signal of the handler that runs the job at once, by push, with the reason.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { AbortReason, Duration, Stop } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { systemRuntime } from '../../../src/store/runtime.js'
import { closing, gate, newQueue } from '../../setup.js'
import { scenes } from './transaction/file-store.js'

const scene = scenes()

/** Runs a job whose handler waits for its signal; `take` revokes the lease, and this returns the reason of the signal. */
async function reasonGiven(
  queue: Queue,
  take: (id: string) => Promise<unknown>,
  options: { readonly attempts?: number } = {},
  lease: Duration = '1h', // so that no renewal finds out
): Promise<AbortReason | undefined> {
  const started = gate()
  const reason = gate<AbortReason | undefined>()
  closing(
    new Worker(
      queue,
      async (_job, ctx) => {
        ctx.signal.addEventListener('abort', () => reason.open(ctx.signal.reason?.reason))
        started.open()
        await reason.promise
      },
      { logger: false, lease },
    ),
  )
  const { id } = await queue.add('n', undefined, options)
  await started.promise
  await take(id)
  return reason.promise
}

describe.each(['memory', 'sqlite', 'sqlite from another handle'] as const)('on %s, a handler learns', (where) => {
  async function handles(): Promise<{ here: Queue; there: Queue }> {
    if (where === 'memory') {
      const queue = newQueue({ store: closing(memory()) })
      return { here: queue, there: queue }
    }
    const { queue, elsewhere } = await scene()
    return { here: queue, there: where === 'sqlite' ? queue : elsewhere() }
  }

  it('that its job was cancelled', async () => {
    const { here, there } = await handles()
    expect(await reasonGiven(here, (id) => there.cancel(id))).toBe('cancelled')
  })

  it('that it was removed', async () => {
    const { here, there } = await handles()
    expect(await reasonGiven(here, (id) => there.remove(id))).toBe('removed')
  })

  it('that it was completed elsewhere', async () => {
    const { here, there } = await handles()
    const take = (id: string): Promise<unknown> =>
      there.chain(id).complete(async ({ complete }) => complete(async () => 'by hand'))
    expect(await reasonGiven(here, take)).toBe('completed-elsewhere')
  })
})

describe('a handler whose lease was reaped by another process', () => {
  it.each([
    ['to be tried again', 3],
    ['for good', 1],
  ] as const)('learns that it has lost it, %s', async (_how, attempts) => {
    const { path } = await scene()
    const real = systemRuntime()
    // A process that has stopped to renew and to poll: it only receives notices.
    const timer = (delay: number, work: () => void): Stop => (delay > 20 ? () => {} : real.timer(delay, work))
    const deaf = closing(sqlite(path, { runtime: { ...real, timer } }))
    const queue = closing(new Queue('work', { store: deaf, logger: false }))
    const reap = async (): Promise<void> => {
      const store = closing(sqlite(path))
      await closing(new Worker('work', { other: () => {} }, { store, logger: false, autorun: false })).run()
    }
    expect(await reasonGiven(queue, reap, { attempts }, 100)).toBe('lease-lost')
  })
})
