// Every operation of the table: with a valid sample, without a token, with each other role, and with each field missing,
// of a wrong type and beyond its bound.
import { describe, expect, it } from 'vitest'
import { ROLES } from '../../../src/server/principal.js'
import type { Route } from '../../../src/server/route.js'
import { routes } from '../../../src/server/routes.js'
import type { JsonSchema } from '../../../src/server/shape.js'
import { samples } from './samples/all.js'
import { newWorld } from './world.js'
import type { Read, Who, World } from './world.js'
import { wrongValues } from './wrong-values.js'

const nameOf = ({ method, path }: Route): string => `${method} ${path}`

/** The token that may call a route: the first of its roles. */
const callerOf = ({ access }: Route): Who | undefined =>
  access === 'open' ? undefined : access === 'token' ? 'read' : access[0]

/** What every problem must hold, and must not. */
function expectProblem({ status, headers, body, text }: Read, statuses: readonly number[]): void {
  expect(statuses, text).toContain(status)
  expect(headers.get('content-type')).toBe('application/problem+json')
  expect(body).toMatchObject({
    status,
    code: expect.any(String),
    remedy: expect.any(String),
    detail: expect.any(String),
  })
  expect(body.request).toBe(headers.get('x-request-id'))
  expect(text).not.toMatch(/\bat .*\.[jt]s:\d+/)
}

it('there is a sample for every operation, and an operation for every sample', () => {
  expect(Object.keys(samples).toSorted()).toEqual(routes.map(nameOf).toSorted())
})

describe.each(routes.map((route) => [nameOf(route), route] as const))('%s', (operation, route) => {
  const { method, path, access } = route
  const sample = samples[operation] ?? {}
  const parts = async (world: World): Promise<NonNullable<Parameters<World['ask']>[3]>> =>
    (await sample.parts?.(world)) ?? {}

  it('answers a valid request with one of its statuses', async () => {
    const world = newWorld()
    const response = await world.send(callerOf(route), method, path, await parts(world))
    const known = Object.keys(route.answers).map(Number)
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
    const text = isStream ? 'a stream' : await response.text()
    if (isStream) await response.body?.cancel()
    expect(known, text).toContain(response.status)
  })

  if (access === 'open') return

  it('refuses a request without a token, or with an unknown one', async () => {
    const world = newWorld()
    const given = await parts(world)
    expectProblem(await world.ask(undefined, method, path, given), [401])
    const headers = { ...given.headers, authorization: 'Bearer mrt_admin.guessed' }
    expectProblem(await world.ask(undefined, method, path, { ...given, headers }), [401])
  })

  if (access !== 'token') {
    const refused = ROLES.filter((role) => role !== 'admin' && !access.includes(role))
    it.each(refused)('refuses the role %s', async (role) => {
      const world = newWorld()
      const answer = await world.ask(role, method, path, await parts(world))
      expectProblem(answer, [403])
      expect(answer.body.code).toBe('FORBIDDEN')
    })

    if (/\{queue\}|^\/v1\/jobs\//.test(path)) {
      it('refuses a token whose roles hold for another queue', async () => {
        const world = newWorld()
        expectProblem(await world.ask('stranger', method, path, await parts(world)), [403, 404])
      })
    }
  }

  if (route.changes) {
    it('is refused by a server that is read-only', async () => {
      const open = newWorld()
      const given = await parts(open)
      const world = newWorld({ store: open.store, readOnly: true })
      const answer = await world.ask('everybody', method, path, given)
      expectProblem(answer, [403])
      expect(answer.body.code).toBe('READ_ONLY')
    })
  }

  if (route.body !== undefined && sample.loose === undefined) {
    it('refuses each field of its body that is missing, of a wrong type, or beyond its bound', async () => {
      const world = newWorld()
      const given = await parts(world)
      const wrong = wrongValues(route.body!.schema, given.body)
      expect(wrong.length).toBeGreaterThan(0)
      for (const { what, value } of wrong) {
        const answer = await world.ask(callerOf(route), method, path, { ...given, body: value })
        expect([400, 409, 413, 422], `${what}: ${answer.status} ${answer.text}`).toContain(answer.status)
        expectProblem(answer, [400, 409, 413, 422])
      }
    })
  }

  if (route.query !== undefined) {
    it('refuses each parameter that is of a wrong type or beyond its bound', async () => {
      const world = newWorld()
      const given = await parts(world)
      const properties = Object.fromEntries(Object.entries(route.query!).map(([key, { schema }]) => [key, schema]))
      const schema = { type: 'object', properties, additionalProperties: false } as unknown as JsonSchema
      for (const { what, value } of wrongValues(schema, given.query ?? {}, 'query')) {
        if (typeof value !== 'object' || value === null || Array.isArray(value)) continue
        const texts = Object.entries(value).map(([key, each]) => [key, textOf(each)])
        if (texts.some(([key]) => isText(route, key!)) && /wrong type|number|an object/.test(what)) continue // any text fits
        const query = Object.fromEntries(texts) as Record<string, string>
        const answer = await world.ask(callerOf(route), method, path, { ...given, query })
        expect([400, 413], `${what}: ${answer.status} ${answer.text}`).toContain(answer.status)
        expectProblem(answer, [400, 413])
      }
    })
  }
})

/** A value as a parameter. */
function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(',')
  if (typeof value === 'string') return value
  return typeof value === 'object' ? '{' : JSON.stringify(value)
}

/** Whether a parameter takes text, or a list of texts, so that a number is as good. */
function isText({ query = {} }: Route, key: string): boolean {
  const { type, items } = (query[key]?.schema ?? {}) as { readonly type?: string; readonly items?: { type?: string } }
  return type === 'string' || (type === 'array' && items?.type === 'string')
}
