// One PostgreSQL server for a run of vitest, of the newest major or of the one that MILLRACE_POSTGRES names, started
// when the first test asks for it and gone when the run is. With DATABASE_URL, that server instead.
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import type { Server as Listener } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import type { TestProject } from 'vitest/node'
import { clusterIn } from './cluster.js'
import { guarded } from './guard.js'
import type { Guard } from './guard.js'
import { startServer, usualMajor } from './server.js'
import type { Server } from './server.js'

declare module 'vitest' {
  interface ProvidedContext {
    /** Where a test asks for the server or for a cluster, and what the names of its schemas and databases begin with. */
    postgres: { ask: string; prefix: string }
  }
}

const given = process.env['DATABASE_URL']
const prefix = `m_${randomBytes(4).toString('hex')}_`
let cluster: Promise<string> | undefined
let guard: Guard | undefined
let started: Promise<Server> | undefined
let asked: Listener | undefined
let folder = ''

export async function setup(project: TestProject): Promise<void> {
  folder = mkdtempSync(join(tmpdir(), 'millrace-tests-'))
  process.once('exit', removeFolder)
  const ask = process.platform === 'win32' ? `\\\\?\\pipe\\${folder}` : join(folder, 'ask')
  asked = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (what) => {
      void (String(what) === 'cluster' ? clusterFolder() : url()).then(
        (answer) => socket.end(JSON.stringify({ answer })),
        (error: Error) => socket.end(JSON.stringify({ error: error.message })),
      )
    })
  })
  asked.listen(ask)
  await once(asked, 'listening')
  project.provide('postgres', { ask, prefix })
}

export async function teardown(): Promise<void> {
  asked?.close()
  removeFolder()
  if (given) await clear(given)
  const server = await started?.catch(() => undefined)
  await server?.close()
  const place = await cluster?.catch(() => undefined)
  if (place !== undefined) rmSync(place, { recursive: true, force: true })
  guard?.close()
}

async function url(): Promise<string> {
  if (given) return given
  // Nothing here depends on what outlives a power cut: servers that are killed are the tests' own.
  started ??= clusterFolder().then((from) => startServer({ from, settings: { fsync: 'off' } }))
  return (await started).url
}

/** A cluster that is never started: servers of this run begin with a copy of it. */
function clusterFolder(): Promise<string> {
  const make = async (): Promise<string> => {
    const place = mkdtempSync(join(tmpdir(), 'millrace-postgres-'))
    guard = guarded(place, 'remove')
    await clusterIn(place, usualMajor)
    return place
  }
  cluster ??= make()
  return cluster
}

/** Leaves a server that was not started here as it was found. */
async function clear(at: string): Promise<void> {
  const client = new Client(at)
  await client.connect()
  const named = async (sql: string): Promise<string[]> => {
    const { rows } = await client.query<{ name: string }>(sql, [prefix])
    return rows.map(({ name }) => client.escapeIdentifier(name))
  }
  const schemas = await named('select nspname::text as name from pg_namespace where starts_with(nspname::text, $1)')
  for (const each of schemas) await client.query(`drop schema ${each} cascade`)
  const databases = await named('select datname::text as name from pg_database where starts_with(datname::text, $1)')
  for (const each of databases) await client.query(`drop database ${each} with (force)`)
  await client.end()
}

function removeFolder(): void {
  rmSync(folder, { recursive: true, force: true })
}
