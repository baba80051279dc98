// Random requests to all routes: valid ones, ones that are wrong in a place, and nonsense.
import type { Random } from '../../../src/testing/world/random.js'
import type { Route } from '../../../src/server/route.js'
import { QUEUE } from '../routes/world.js'
import type { Parts, Who } from '../routes/world.js'
import { wrongValues } from '../routes/wrong-values.js'

/** Texts that have harmed servers. */
const TEXTS = [
  '',
  ' ',
  '.',
  '..',
  '../..',
  '%2e%2e%2f',
  '%00',
  '\u0000',
  '\r\nx: y',
  '__proto__',
  'constructor',
  'toString',
  'millrace:audit',
  'schedule:x',
  '*',
  "'; drop table jobs; --",
  '$where',
  '<script>alert(1)</script>',
  '\ud800',
  '\u202e',
  '😀'.repeat(100),
  'x'.repeat(255),
  'x'.repeat(256),
  'x'.repeat(7_000),
  '9'.repeat(400),
  '1e999',
  'NaN',
  '-1',
  '0x10',
  '{',
  '[]',
  'null',
  'true',
  ',,,',
  'a,b,c',
  '1h',
  '2026-01-01',
  '(a+)+$',
  '${7*7}',
]

const NUMBERS = [0, -0, 1, -1, 0.5, 1e308, -1e308, 2 ** 31, 2 ** 53, Number.MAX_SAFE_INTEGER, 1e21]

/** Any JSON value. */
function anything(random: Random, depth = 0): unknown {
  switch (random.between(0, depth > 4 ? 3 : 6)) {
    case 0:
      return random.pick(TEXTS)
    case 1:
      return random.pick(NUMBERS)
    case 2:
      return random.chance(0.5)
    case 3:
      return null
    case 4:
      return Array.from({ length: random.between(0, 5) }, () => anything(random, depth + 1))
    default:
      return Object.fromEntries(
        Array.from({ length: random.between(0, 5) }, () => [
          random.pick([...TEXTS, 'data', 'id', 'name', 'where']),
          anything(random, depth + 1),
        ]),
      )
  }
}

/** What is known of the world: ids and keys that exist. */
export interface Known {
  readonly ids: readonly string[]
  readonly keys: readonly string[]
}

/** One request. */
export interface RandomRequest {
  readonly who: Who | undefined
  readonly parts: Parts
  /** A body that is no JSON, in place of that of `parts`. */
  readonly rawBody?: string
}

/** Makes a request to a route. */
export function randomRequest(random: Random, route: Route, known: Known, valid: Parts): RandomRequest {
  const who = random.pick(['admin', 'admin', 'everybody', 'read', 'produce', 'work', 'stranger', undefined] as const)
  const params: Record<string, string> = {}
  for (const [, key] of route.path.matchAll(/\{(\w+)\}/g)) params[key!] = paramOf(random, key!, known)
  const query: Record<string, string> = {}
  for (const [key, shape] of Object.entries(route.query ?? {})) {
    if (random.chance(0.75)) continue
    query[key] = random.chance(0.5) ? random.pick(TEXTS) : exampleOf(shape.example)
  }
  if (random.chance(0.05)) query[random.pick(TEXTS)] = random.pick(TEXTS)
  const headers: Record<string, string> = {}
  if (random.chance(0.1))
    headers['content-type'] = random.pick(['text/plain', 'application/json; charset=utf-16', 'x', '*/*'])
  if (random.chance(0.1)) headers['content-encoding'] = random.pick(['gzip', 'br', 'identity', 'gzip, gzip'])
  if (random.chance(0.1)) headers['idempotency-key'] = random.pick(['a', 'x'.repeat(300), '\u00e9'])
  if (random.chance(0.1)) headers['last-event-id'] = random.pick(['1', '0.end', 'x'.repeat(300), '-1', '9'.repeat(40)])
  if (random.chance(0.05)) headers['cookie'] = random.pick(['millrace=a.b', 'millrace=;;;', '='.repeat(200)])
  if (random.chance(0.05)) headers['origin'] = random.pick(['null', 'http://localhost', 'https://evil.example'])
  const parts = { params, query, headers }
  if (route.body === undefined || random.chance(0.1)) return { who, parts }
  if (random.chance(0.1)) {
    const rawBody = random.pick([
      '{',
      '',
      '[',
      '"',
      '{"a":1}}',
      '\u0000',
      '{"__proto__":{"admin":true}}',
      '['.repeat(2_000),
    ])
    return { who, parts, rawBody }
  }
  const wrong = wrongValues(route.body.schema, valid.body)
  const body =
    random.chance(0.3) || wrong.length === 0
      ? anything(random)
      : random.chance(0.3)
        ? valid.body
        : random.pick(wrong).value
  return { who, parts: { ...parts, body } }
}

function paramOf(random: Random, key: string, { ids, keys }: Known): string {
  if (random.chance(0.3)) return random.pick(TEXTS) || 'x'
  if (key === 'queue') return random.chance(0.9) ? QUEUE : 'other'
  if (key === 'key') return random.pick(keys)
  return random.pick(ids)
}

function exampleOf(example: unknown): string {
  return typeof example === 'string' ? example : JSON.stringify(example)
}
