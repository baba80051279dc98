// examples/demo/producer.ts: a process that adds orders, and ends. Its argument is the path of the database.
import { setTimeout as pause } from 'node:timers/promises'
import { Queue, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { PHOTOS, QUEUE, customers, jobs } from './jobs.js'
import { send } from './processes.js'

const store = sqlite(process.argv[2] ?? 'jobs.db')
const queue = new Queue(QUEUE, { store, jobs })
const acknowledged: string[] = []

for (const customer of customers) {
  const photos = Array.from({ length: PHOTOS }, (_, index) => `${customer}-${index + 1}`)
  // With an id of one's own an add can be repeated: the second add of an order returns the first one.
  const thumbnails = await queue.addBulk(
    photos.map((photo) => ({ name: 'thumbnail', data: { photo }, options: { id: `thumbnail-${photo}` } })),
  )
  const film = await queue.add('film', { customer }, { id: `film-${customer}`, after: thumbnails })
  const email = await queue.add('email', { to: customer }, { id: `email-${customer}`, after: film })
  acknowledged.push(...[...thumbnails, film, email].map(({ id }) => id))
  await pause(500)
}

await shutdown([queue, store])
send({ acknowledged })
