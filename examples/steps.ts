// Durable steps: an order is charged once, sleeps, and waits for an address, whatever fails in between.
import { Queue, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('orders', { store, defaults: { attempts: 3, backoff: 10 } })
const worker = new Worker(queue, {
  order: async (job, ctx) => {
    const receipt = await ctx.step('charge', async () => {
      console.log('charging')
      return `receipt of ${job.id}`
    })
    await ctx.sleep('cooling off', 50)
    const { address } = await ctx.waitForSignal<{ address: string }>('address', { timeout: '30 days' })
    console.log(`attempt ${job.attempt}`)
    if (job.attempt === 1) throw new Error('the printer is out of paper')
    return ctx.step('ship', async () => `${receipt} to ${address}`)
  },
})

const waits = new Promise<void>((resolve) => void queue.on('waiting-children', () => resolve()))
const order = await queue.add('order', {}, { id: 'order-1' })
await waits
console.log((await queue.explain(order.id)).reasons[0]?.why)
console.log('taken:', await queue.signal(order.id, 'address', { address: '1 Mill Lane' }))
console.log('taken:', await queue.signal(order.id, 'address', { address: 'elsewhere' }))
console.log(await order.result())

await shutdown([worker, queue, store])
