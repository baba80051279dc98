// The server that each program of this folder mounts, on the built package, and the queue that it is asked about.
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { serve, tokenList } from 'millrace/server'

const store = memory()
const queue = new Queue('mail/eu', { store, logger: false })
await queue.add('send', { to: 'ann' })

export const BASE = '/admin/jobs'

/** The tokens come from the test. */
const auth = tokenList(JSON.parse(process.env.MILLRACE_TOKENS))

export const server = serve({ store, auth, base: BASE, logger: false })

/** Tells the test where the program answers. */
export function listening(port) {
  console.log(`listening on http://127.0.0.1:${port}${BASE}`)
}
