// The PostgreSQL server that all tests of a run share: each test takes a schema or a database of its own there.
import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { Client } from 'pg'
import { inject } from 'vitest'
import { startServer } from './server.js'
import type { Server, ServerOptions } from './server.js'

/** The URL of the shared server, where a superuser connects; the first who asks starts it. */
export function sharedServer(): Promise<string> {
  return ask('server')
}

/** A server of a test's own, to be closed by it: for what would disturb others. DATABASE_URL does not change it. */
export async function ownServer(options: Omit<ServerOptions, 'from' | 'major'> = {}): Promise<Server> {
  return startServer({ ...options, from: await ask('cluster') })
}

async function ask(what: 'server' | 'cluster'): Promise<string> {
  const socket = connect(inject('postgres').ask)
  socket.write(what)
  const { answer, error } = JSON.parse(await text(socket)) as { answer?: string; error?: string }
  if (answer === undefined) throw new Error(error)
  return answer
}

/** A name that no other test has, for a schema. With DATABASE_URL it is dropped when the run ends. */
export function newSchema(): string {
  return `${inject('postgres').prefix}${randomBytes(6).toString('hex')}`
}

/** The URL of an empty database that no other test has. */
export async function newDatabase(): Promise<string> {
  const url = new URL(await sharedServer())
  const name = newSchema()
  const client = new Client(url.href)
  await client.connect()
  await client.query(`create database ${name}`)
  await client.end()
  url.pathname = `/${name}`
  return url.href
}
