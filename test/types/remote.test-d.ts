// What does not travel to a server is refused by the types.
import { test } from 'vitest'
import { Queue } from 'millrace'
import { http } from 'millrace/http'
import { memory } from 'millrace/memory'
import { webhooks } from 'millrace/webhooks'

const store = http('https://jobs.example.com', { token: 'mrt_a.b' })
const webhook = webhooks({ url: 'https://example.com', secret: 'whsec_x' })

test('a queue on a remote store has no transactions and no secrets of webhooks', () => {
  new Queue('mail', { store: memory(), webhook })
  // @ts-expect-error -- the server sends the deliveries
  new Queue('mail', { store, webhook })
  const queue = new Queue('mail', { store })
  // @ts-expect-error -- there is no transaction to write in
  void queue.add('send', null, { tx: {} })
  void queue.add('send', null, { delay: '1m' })
})
