// A run until drained, and a job of another worker that ends between its last claim and its look at the counts.
import { expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { observed } from '../observed-store.js'
import { closing } from '../setup.js'

test('what that job releases is run as well', async () => {
  const inner = closing(memory())
  let endElsewhere: (() => Promise<void>) | undefined
  const store: Store = {
    ...observed(inner, () => {}),
    tally: async (queues, tx) => {
      await endElsewhere?.()
      return inner.tally(queues, tx)
    },
  }
  const queue = closing(new Queue('work', { store, logger: false }))
  const child = await queue.add('elsewhere')
  await queue.add('here', undefined, { after: child })
  const [held] = await queue.claim({ names: ['elsewhere'] })
  endElsewhere = async () => {
    endElsewhere = undefined
    await held!.complete()
  }
  const worker = closing(new Worker(queue, { here: () => 'done' }, { autorun: false, logger: false }))
  expect(await worker.run({ until: 'drained' })).toMatchObject({ ended: 'drained', started: 1, completed: 1 })
})
