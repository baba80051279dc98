import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Client } from 'pg'
import { afterEach, expect, it, vi } from 'vitest'
import { startServer } from './server.js'
import type { Server } from './server.js'
import { newDatabase, newSchema, ownServer, sharedServer } from './shared.js'

let server: Server | undefined

afterEach(async () => {
  await server?.close()
  server = undefined
})

async function ask(url: string, sql: string): Promise<unknown> {
  const client = new Client(url)
  client.on('error', () => {}) // some of these servers go away
  await client.connect()
  const { rows } = await client.query<Record<string, unknown>>(sql)
  await client.end()
  return Object.values(rows[0] ?? {})[0]
}

it('starts durable, and keeps what was committed when it is killed', async () => {
  server = await startServer()
  const { url } = server
  expect(await ask(url, 'show fsync')).toBe('on')
  expect(await ask(url, 'show synchronous_commit')).toBe('on')
  await ask(url, 'create table kept as select 7 as n')

  await server.kill()
  await expect(ask(url, 'select 1')).rejects.toThrow('ECONNREFUSED')

  await server.start()
  expect(server.log()).toContain('was not properly shut down')
  expect(await ask(url, 'select n from kept')).toBe(7)
})

it('starts again with other settings after an orderly stop', async () => {
  server = await ownServer({ settings: { work_mem: '8MB' } })
  expect(await ask(server.url, 'show work_mem')).toBe('8MB')
  await server.stop()
  await server.start({ work_mem: '16MB' })
  expect(server.log()).not.toContain('was not properly shut down')
  expect(await ask(server.url, 'show work_mem')).toBe('16MB')
})

it('reports the server’s output when it cannot start', async () => {
  await expect(ownServer({ settings: { work_mem: 'much' } })).rejects.toThrow('invalid value for parameter "work_mem"')
})

it('does not outlive the process that started it, even if that was killed', async () => {
  const program = fileURLToPath(new URL('../../../../scripts/postgres.mjs', import.meta.url))
  const starter = spawn(process.execPath, ['--import', 'tsx', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [output] = (await once(starter.stdout, 'data')) as [Buffer]
  const url = String(output).trim()
  expect(await ask(url, 'select 1')).toBe(1)
  starter.kill('SIGKILL')
  await vi.waitFor(() => expect(ask(url, 'select 1')).rejects.toThrow('ECONNREFUSED'), { timeout: 20_000 })
})

it('is one server for all tests, with names that no two of them share', async () => {
  const [one, other] = await Promise.all([sharedServer(), sharedServer()])
  expect(one).toBe(other)
  expect(newSchema()).not.toBe(newSchema())
})

it('gives a test a database of its own', async () => {
  const url = await newDatabase()
  expect(await ask(url, 'select current_database()')).toBe(new URL(url).pathname.slice(1))
})
