// The server of the REST rows, in a process of its own: a Millrace server on a SQLite file, or Hono that only answers.
import { serve as listen } from '@hono/node-server'
import { Hono } from 'hono'
import { createToken, serve, tokenList } from 'millrace/server'
import { openStore } from '../contenders/millrace-sqlite.js'
import { QUEUE } from '../measure/load.js'

/** What the server says once it listens. */
export interface Ready {
  readonly port: number
  readonly token: string
}

/** How much of a core it has used since it was last asked, and its memory in MB. */
export interface Usage {
  readonly cpu: number
  readonly memory: number
}

const [kind = 'millrace', path = ''] = process.argv.slice(2)
const send = (message: Ready | Usage): void => void process.send?.(message)

let before = process.cpuUsage()
let since = performance.now()
process.on('message', () => {
  const { user, system } = process.cpuUsage(before)
  const now = performance.now()
  send({ cpu: (user + system) / 1000 / (now - since), memory: process.memoryUsage.rss() / 2 ** 20 })
  before = process.cpuUsage()
  since = now
})
process.once('disconnect', () => process.exit())

if (kind === 'millrace') {
  const { token, entry } = createToken({ name: 'bench', roles: ['admin'], queues: ['*'] })
  const server = serve({ store: openStore(path, 'full'), queues: [QUEUE], auth: tokenList([entry]), logger: false })
  send({ port: (await server.listen({ port: 0 })).port, token })
} else {
  const app = new Hono()
  app.post('*', async (context) => context.json(await context.req.json(), 201))
  listen({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => send({ port, token: 'none' }))
}
