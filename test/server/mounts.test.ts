// The server mounted in frameworks, and by itself. Each is asked the same. Next and Nest, Bun and Deno: test/system/mounts.
import { createServer } from 'node:http'
import type { RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve as serveHono } from '@hono/node-server'
import express from 'express'
// @ts-expect-error it has the types of version 5, as far as they are used here
import untyped from 'express4'
import fastify from 'fastify'
import { Hono } from 'hono'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList } from 'millrace/server'
import type { Server } from 'millrace/server'
import { reading } from '../queue/events/read-sse.js'
import { closing } from '../setup.js'

const express4 = untyped as typeof express

const BASE = '/admin/jobs'
/** A name that must be encoded as a part of a path. */
const QUEUE = 'mail/eu & 100%'
const ann = createToken({ name: 'ann', roles: ['admin'], queues: ['*'] })

/** Begins to serve with a handler of node:http; returns the address. */
async function listening(handler: RequestListener): Promise<string> {
  const http = createServer(handler)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    http.close()
    http.closeAllConnections()
  })
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`
}

/** Mounts a server; returns the address below which it answers. */
type Mount = (server: Server) => Promise<string>

function withExpress(make: typeof express, parsed: boolean): Mount {
  return async (server) => {
    const app = make()
    if (parsed) app.use(make.json(), make.urlencoded({ extended: true }))
    app.use(BASE, server.node)
    return `${await listening(app)}${BASE}`
  }
}

const mounts: Readonly<Record<string, Mount>> = {
  'by itself': async (server) => (await server.listen({ port: 0 })).url,
  'in node:http': (server) => listening(server.node),
  'in node:http below a base': async (server) => `${await listening(server.node)}${BASE}`,
  'in Hono': async (server) => {
    const app = new Hono()
    app.mount(BASE, server.fetch)
    const http = serveHono({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' })
    onTestFinished(() => void http.close())
    await new Promise<void>((resolve) => http.once('listening', resolve))
    return `http://127.0.0.1:${(http.address() as AddressInfo).port}${BASE}`
  },
  'in Express 4': withExpress(express4, false),
  'in Express 4 after express.json()': withExpress(express4, true),
  'in Express 5': withExpress(express, false),
  'in Express 5 after express.json()': withExpress(express, true),
  'in Fastify 5': async (server) => {
    const app = fastify()
    await app.register(async (scope) => {
      scope.removeAllContentTypeParsers()
      scope.addContentTypeParser('*', (_request, _body, done) => done(null))
      scope.all(`${BASE}/*`, (request, reply) => {
        reply.hijack()
        server.node(request.raw, reply.raw)
      })
    })
    onTestFinished(() => app.close())
    return `${await app.listen({ port: 0 })}${BASE}`
  },
  'as route handlers': async (server) => {
    const handlers = server.next()
    const app = new Hono()
    app.all('*', (context) => handlers[context.req.method as keyof typeof handlers](context.req.raw))
    const http = serveHono({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' })
    onTestFinished(() => void http.close())
    await new Promise<void>((resolve) => http.once('listening', resolve))
    return `http://127.0.0.1:${(http.address() as AddressInfo).port}${BASE}`
  },
}

describe.each(Object.entries(mounts))('%s', (_name, mount) => {
  it('reads, changes, streams, and refuses what is wrong', async () => {
    const store = closing(memory())
    const server = closing(serve({ store, auth: tokenList([ann.entry]), base: BASE, logger: false }))
    const queue = closing(new Queue(QUEUE, { store, logger: false }))
    const { id } = await queue.add('send', { to: 'ann' })
    const url = await mount(server)
    const json = { 'content-type': 'application/json' }
    const ask = async (
      method: string,
      path: string,
      init: { body?: string; headers?: Record<string, string> } = {},
    ): Promise<{ status: number; body: Record<string, unknown> }> => {
      const headers = { authorization: `Bearer ${ann.token}`, ...init.headers }
      const answer = await fetch(`${url}${path}`, { method, ...init, headers })
      expect(answer.headers.get('x-request-id')).not.toBeNull()
      const text = await answer.text()
      return { status: answer.status, body: text === '' ? {} : JSON.parse(text) }
    }
    const at = `/v1/queues/${encodeURIComponent(QUEUE)}`

    expect(await ask('GET', '/v1')).toMatchObject({ status: 200, body: { you: { name: 'ann' } } })
    expect(await ask('GET', '/v1', { headers: { authorization: 'Bearer mrt_ann.no' } })).toMatchObject({ status: 401 })
    expect(await ask('GET', at)).toMatchObject({ status: 200, body: { queue: QUEUE, counts: { waiting: 1 } } })
    expect(await ask('GET', `${at}/jobs?state=waiting`)).toMatchObject({ status: 200, body: { jobs: [{ id }] } })
    const paused = await ask('POST', `${at}/pause`, { body: '{"name":"send","reason":"ünï 😀"}', headers: json })
    expect(paused).toMatchObject({ status: 200, body: { ok: true } })
    expect(await ask('POST', `${at}/resume`)).toMatchObject({ status: 200 }) // without a body
    const changes = JSON.stringify({ data: { text: 'x'.repeat(50_000) } })
    expect(await ask('PATCH', `/v1/jobs/${id}`, { body: changes, headers: json })).toMatchObject({ status: 200 })
    expect(await ask('POST', `${at}/cancel`, { body: '{"where":1}', headers: json })).toMatchObject({ status: 400 })
    const form = { 'content-type': 'application/x-www-form-urlencoded' }
    expect(await ask('POST', `${at}/pause`, { body: 'name=send', headers: form })).toMatchObject({ status: 415 })
    expect(await ask('GET', '/v1/nowhere')).toMatchObject({ status: 404, body: { code: 'ROUTE_NOT_FOUND' } })
    expect(await ask('PUT', '/v1/queues')).toMatchObject({ status: 405 })
    expect(await ask('DELETE', `/v1/jobs/${id}`)).toMatchObject({ status: 200, body: { done: true } })

    const gone = new AbortController()
    const live = await fetch(`${url}/v1/live`, {
      headers: { authorization: `Bearer ${ann.token}` },
      signal: gone.signal,
    })
    expect((await reading(live.body!).event('queues')).data.rows).toMatchObject([{ queue: QUEUE }])
    gone.abort()
  })
})
