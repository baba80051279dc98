// Runs the PostgreSQL rows in a process of their own: on a Node that the peers support, and with a heap of its own.
import type { Client } from 'pg'
import { startServer } from '../test/stores/postgres/server/server.js'
import { chosen } from './measure/selection.js'
import type { Choice } from './measure/selection.js'
import { measure } from './measure/measure.js'
import type { Row } from './measure/measure.js'
import type { Subject } from './contenders/contender.js'
import { bullmq } from './contenders/bullmq.js'
import { postgresSections } from './cases/postgres.js'
import type { Peer } from './cases/postgres.js'
import { createDatabases } from './measure/databases.js'
import type { Databases } from './measure/databases.js'
import { graphileWorker } from './contenders/graphile-worker.js'
import { pgBoss } from './contenders/pg-boss.js'
import { raw } from './contenders/raw-postgres.js'
import { hasRedis, startRedis } from './contenders/redis.js'
import type { Redis } from './contenders/redis.js'
import { millrace } from './contenders/millrace-postgres.js'

/** The argument of this process. */
export interface RunOptions extends Choice {
  readonly full: boolean
  readonly scale: number
  /** A server that runs already. Default: a server is started. */
  readonly url?: string
  /** Whether peers are installed. */
  readonly peers: boolean
}

/** A message of this process to its parent. */
export type Message =
  | { readonly kind: 'log'; readonly line: string }
  | { readonly kind: 'note'; readonly line: string }
  | { readonly kind: 'about'; readonly line: string }
  | { readonly kind: 'section'; readonly name: string; readonly rows: readonly Row[] }

/** Settings of a started server: more memory, and no checkpoint in the middle of a measurement. */
const SETTINGS = { fsync: 'on', synchronous_commit: 'on', shared_buffers: '512MB', max_wal_size: '4GB' }
/** The settings that the report contains. */
const REPORTED_SETTINGS = ['fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size']

const WARM = 10_000

const options = JSON.parse(process.argv[2] ?? '') as RunOptions
const send = (message: Message): void => void process.send?.(message)
const log = (line: string): void => send({ kind: 'log', line })
const note = (line: string): void => send({ kind: 'note', line })

let databases: Databases | undefined
let redis: Redis | undefined
const running = <T>(server: T | undefined): T => {
  if (server === undefined) throw new Error('The server does not run yet.')
  return server
}

async function findPeers(): Promise<readonly Peer[]> {
  if (!options.peers) return []
  const wanted = (name: string): boolean => options.beside?.includes(name) ?? true
  const peers: Peer[] = []
  const onDatabase = (subject: Subject): Peer => ({ subject, places: () => running(databases) })
  if (wanted('pg-boss')) peers.push(onDatabase(await pgBoss()))
  if (wanted('graphile-worker')) peers.push(onDatabase(await graphileWorker()))
  if (wanted('BullMQ')) {
    if (hasRedis()) peers.push({ subject: await bullmq(), places: () => running(redis) })
    else note('BullMQ is left out, because there is no redis-server: install it with `apt-get install redis-server`.')
  }
  return peers
}

/** Reports the version and the settings of the server. Settings that reduce durability get a note. */
async function look(client: Client): Promise<void> {
  const shown = async (setting: string): Promise<string> => {
    const { rows } = await client.query<Record<string, string>>(`show ${setting}`)
    return Object.values(rows[0]!)[0]!
  }
  const settings: [name: string, value: string][] = []
  for (const name of REPORTED_SETTINGS) settings.push([name, await shown(name)])
  const listed = settings.map(([name, value]) => `${name} ${value}`).join(', ')
  const server = (await shown('server_version')).split(' ')[0]
  send({ kind: 'about', line: `PostgreSQL ${server} on Node ${process.version} with pg: ${listed}` })
  for (const [name, value] of settings) {
    const durable = name.includes('sync') || name === 'full_page_writes'
    if (durable && value !== 'on') note(`${name} is ${value}: a power cut may take what this server acknowledged.`)
  }
}

/** Runs a little of everything, so that no contender is measured while its code is still compiled. */
async function warmUp(contestants: readonly Peer[]): Promise<void> {
  const backlog = { weight: 'light', waiting: WARM } as const
  for (const { subject, places } of contestants) {
    log(`warming up ${subject.name}`)
    const load = { mode: 'full', weight: 'light' } as const
    for (const [way, count] of [
      ['awaited', 200],
      ['flight', 1000],
      ['bulk', WARM],
    ] as const) {
      const path = await places().copy(`${subject.name} warm`, (url) => subject.fill(url, { ...backlog, waiting: 0 }))
      await subject.add(path, way, { ...load, count })
      if (way === 'bulk') await subject.drain(path, { ...load, count }, backlog)
      await places().drop(path)
    }
  }
}

async function run(): Promise<void> {
  const peers = await findPeers()
  const { full, scale } = options
  const bench = { databases: () => running(databases), peers, full, scale }
  const sections = postgresSections(bench).flatMap((section) => chosen(section, options))
  if (sections.length === 0) return
  const contenders = new Set(
    sections.flatMap(({ cases }) => cases.flatMap((each) => each.contenders)).map(({ name }) => name),
  )
  const server = options.url === undefined ? await startServer({ settings: SETTINGS }) : undefined
  try {
    databases = await createDatabases(options.url ?? server!.url)
    await look(databases.admin)
    if (contenders.has('BullMQ')) {
      redis = await startRedis()
      send({ kind: 'about', line: `Redis ${redis.version}, in memory only` })
    }
    const own = { places: bench.databases }
    const contestants = [{ subject: millrace, ...own }, { subject: raw, ...own }, ...peers]
    await warmUp(contestants.filter(({ subject }) => contenders.has(subject.name)))
    for (const section of sections) {
      send({ kind: 'section', name: section.name, rows: await measure(section, 1, log) })
    }
  } finally {
    await databases?.remove()
    await redis?.close()
    await server?.close()
  }
}

// Ends with the parent process.
const abandon = (): never => process.exit(130)
process.once('disconnect', abandon)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, abandon)
await run()
process.off('disconnect', abandon)
process.disconnect()
