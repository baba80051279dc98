// Next builds the app beside this file, and serves it.
import { createServer } from 'node:http'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import next from 'next'

const BASE = '/admin/jobs'
const dir = join(dirname(fileURLToPath(import.meta.url)), 'next')
const app = next({ dev: true, dir, quiet: true })
await app.prepare()
const handler = app.getRequestHandler()
const http = createServer((request, response) => handler(request, response))
http.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${http.address().port}${BASE}`))
