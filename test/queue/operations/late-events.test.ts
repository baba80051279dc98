// Events that come late, as they may from another process: a wait for a job uses the current record.
import { expect, it } from 'vitest'
import type { Job, Queue, Store } from '../../../src/index.js'
import { memory } from '../../../src/memory.js'
import type { Notice } from '../../../src/store/store.js'
import { newQueue, newWorker } from '../../setup.js'

/** A store whose notices can be held back. */
function slow(): { readonly store: Store; hold(): void; release(): void } {
  const inner = memory()
  const held: (() => void)[] = []
  let holding = false
  const store: Store = {
    ...inner,
    watch: (options, listener) =>
      inner.watch(options, (notice: Notice) => {
        if (holding) held.push(() => listener(notice))
        else listener(notice)
      }),
  }
  return {
    store,
    hold: () => void (holding = true),
    release: () => {
      holding = false
      for (const deliver of held.splice(0)) deliver()
    },
  }
}

async function scene(): Promise<ReturnType<typeof slow> & { readonly queue: Queue; readonly job: Job }> {
  const held = slow()
  const queue = newQueue({ store: held.store })
  queue.on('cancelled', () => {}) // so that it receives events from the beginning
  await queue.counts()
  held.hold()
  return { ...held, queue, job: await queue.add('chore', 7) }
}

it('a result does not reject for a cancellation that was undone before it was asked for', async () => {
  const { queue, job, release } = await scene()
  await job.cancel()
  await job.retry()
  const result = job.result()
  await queue.counts() // it has looked
  release()
  newWorker(queue, ({ data }) => data)
  expect(await result).toBe(7)
})

it('a result does not reject for the removal of an earlier job of the same id', async () => {
  const { queue, job, release } = await scene()
  await job.remove()
  const again = await queue.add('chore', 8, { id: job.id })
  const result = again.result()
  await queue.counts()
  release()
  newWorker(queue, ({ data }) => data)
  expect(await result).toBe(8)
})

it('a result rejects for what stands: a failure also where the job is not kept, a cancellation, a removal', async () => {
  const { queue, release } = await scene()
  release()
  newWorker(queue, { fails: () => Promise.reject(new Error('no')) })
  const failing = await queue.add('fails', 1, { attempts: 1, removeOnFail: true })
  await expect(failing.result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
  const [cancelled, removed] = [await queue.add('other'), await queue.add('other')]
  const ends = [cancelled, removed].map((each) => each.result().catch((error: unknown) => error))
  await queue.counts()
  await cancelled.cancel()
  await removed.remove()
  expect(await Promise.all(ends)).toMatchObject([{ code: 'JOB_CANCELLED' }, { code: 'JOB_REMOVED' }])
})
