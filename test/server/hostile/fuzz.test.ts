// Random requests to all routes: no failure of the server, no code that a route does not name, no growth of memory.
// MILLRACE_FUZZ: how many requests; npm run nightly sends 100,000.
import { expect, it } from 'vitest'
import { errorsOf } from '../../../src/server/openapi.js'
import { routes } from '../../../src/server/routes.js'
import { Random } from '../../../src/testing/world/random.js'
import { samples } from '../routes/samples/all.js'
import { QUEUE, newWorld } from '../routes/world.js'
import type { Parts } from '../routes/world.js'
import { randomRequest } from './requests.js'

const REQUESTS = Number(process.env['MILLRACE_FUZZ'] ?? 3_000)
const SEED = process.env['MILLRACE_FUZZ_SEED'] ?? '1'

/** Codes that any path or method may have. */
const ANY = new Set(['ROUTE_NOT_FOUND', 'METHOD_NOT_ALLOWED'])

it(
  `${REQUESTS} random requests to ${routes.length} routes fail in no way that their routes do not name`,
  { timeout: 600_000 },
  async () => {
    const random = new Random(`fuzz/${SEED}`)
    const errors: string[] = []
    const world = newWorld({ logger: { warn: () => {}, error: (_, message) => void errors.push(message) } })
    const { queue } = world
    const ids = [
      await world.waiting(),
      await world.failed(),
      (await queue.add('send', null, { delay: '1h' })).id,
      (await queue.operate({ do: 'retry', where: { state: 'failed' } })).id,
    ]
    await queue.schedule('nightly', { name: 'send', every: '1h' })
    const known = { ids, keys: ['nightly', 'none'] }
    const valid = new Map<string, Parts>()
    for (const [operation, { parts }] of Object.entries(samples)) valid.set(operation, (await parts?.(world)) ?? {})
    let heap = 0
    const unnamed = new Set<string>()
    for (let n = 0; n < REQUESTS; n++) {
      const route = random.pick(routes)
      const { method, path } = route
      const operation = `${method} ${path}`
      const { who, parts, rawBody } = randomRequest(random, route, known, valid.get(operation) ?? {})
      const response = await send(world, who, operation, { parts, rawBody, long: route.long === true })
      if (response === undefined) continue
      const text = await textOf(response)
      const description = `#${n} ${operation} ${JSON.stringify(parts).slice(0, 500)} ${rawBody ?? ''}: ${response.status} ${text.slice(0, 500)}`
      expect(response.status, description).toBeLessThan(500)
      if (response.status >= 400) {
        const { code } = JSON.parse(text) as { readonly code: string }
        const named = ANY.has(code) || (errorsOf(route) as readonly string[]).includes(code)
        // With `..` it is another route.
        const isOther = Object.values(parts.params ?? {}).some((param) => /^(\.|%2e)/i.test(param))
        if (!named && !isOther) unnamed.add(`${operation} ${code}`)
      }
      if (n === Math.floor(REQUESTS / 2)) heap = heapNow()
    }
    expect([...unnamed]).toEqual([])
    expect(errors).toEqual([])
    // Twice as many requests hold no more than what was written: entries of the audit, and jobs.
    if (REQUESTS >= 3_000) expect(heapNow() - heap).toBeLessThan(64_000_000 + REQUESTS * 2_000)
    const alive = await world.ask('read', 'GET', '/v1/queues/{queue}', { params: { queue: QUEUE } })
    expect(alive.status).toBe(200)
  },
)

function heapNow(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

/** Sends a request as it is; undefined: the platform does not let such a request be made. */
async function send(
  world: ReturnType<typeof newWorld>,
  who: Parameters<typeof world.send>[0],
  operation: string,
  { parts, rawBody, long }: { readonly parts: Parts; readonly rawBody: string | undefined; readonly long: boolean },
): Promise<Response | undefined> {
  const [method, path] = operation.split(' ') as [string, string]
  const filled = path.replace(/\{(\w+)\}/g, (_, key: string) => encoded(parts.params?.[key] ?? 'x'))
  const search = new URLSearchParams(parts.query).toString()
  const body = rawBody ?? (parts.body === undefined ? undefined : JSON.stringify(parts.body))
  const gone = new AbortController()
  let request: Request
  try {
    request = new Request(`http://localhost${filled}${search === '' ? '' : `?${search}`}`, {
      method,
      headers: {
        ...(who !== undefined && { authorization: `Bearer ${world.tokenOf(who)}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...parts.headers,
      },
      ...(body !== undefined && { body }),
      signal: gone.signal,
    })
  } catch {
    return undefined
  }
  const answered = world.server.fetch(request)
  if (long) setImmediate(() => setTimeout(() => gone.abort(), 5))
  return answered
}

/** Not all that is fuzzed can be encoded; then it is sent as it is. */
function encoded(text: string): string {
  try {
    return text.startsWith('%') || text.startsWith('..') ? text : encodeURIComponent(text)
  } catch {
    return '%ED%A0%80'
  }
}

async function textOf(response: Response): Promise<string> {
  if (response.headers.get('content-type')?.startsWith('text/event-stream') !== true) return response.text()
  await response.body!.cancel()
  return ''
}
