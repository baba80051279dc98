// The schema was led further by a newer Millrace while the server was away.
import { afterEach, expect, test } from 'vitest'
import { postgres } from '../../../src/postgres.js'
import type { Server } from '../../stores/postgres/server/server.js'
import { newDatabase, ownServer } from '../../stores/postgres/server/shared.js'
import { linesOf } from '../account.js'
import { scene, start } from '../processes.js'
import { busyRun, withClient } from './busy-run.js'
import type { WorkerInput, WorkerMessage } from '../programs/postgres/worker.js'

const path = scene()
let server: Server | undefined

afterEach(async () => {
  await server?.close()
  server = undefined
})

const change = (url: string, sql: string): Promise<unknown> => withClient(url, (client) => client.query(sql))

/** A step of the schema after which this version is served no longer, and the way back. */
const further = `begin; update millrace.meta set version = version + 1, oldest = version + 1;
                 alter function millrace.commit_v1 rename to commit_v1_gone; commit`
const back = `begin; update millrace.meta set version = version - 1, oldest = version - 1;
              alter function millrace.commit_v1_gone rename to commit_v1; commit`

test('a newer schema that still serves this version disturbs no process', { timeout: 120_000 }, async () => {
  server = await ownServer()
  const run = await busyRun({ url: server.url, ledger: path('ledger') })
  await run.more(100)
  await server.stop()
  await server.start()
  await change(server.url, 'update millrace.meta set version = version + 1')
  await run.more(200)
  await run.finish()
})

test(
  'a newer schema that no longer serves this version is reported by running workers, which go on when they can',
  { timeout: 120_000 },
  async () => {
    server = await ownServer()
    const run = await busyRun({ url: server.url, ledger: path('ledger') })
    await run.more(100)
    await server.stop()
    await server.start()
    const trouble = run.trouble('SCHEMA_TOO_NEW')
    await change(server.url, further)
    expect((await trouble).message).toContain('Update')
    expect((await run.add())?.codes).toContain('SCHEMA_TOO_NEW')
    await change(server.url, back)
    await run.more(100)
    await run.finish()
  },
)

test(
  'a worker that starts on a schema that is too new reports that, and begins when it can',
  { timeout: 60_000 },
  async () => {
    const url = await newDatabase()
    const store = postgres(url)
    await store.open()
    await store.close()
    await change(url, further)
    const input: WorkerInput = { url, ledger: path('ledger') }
    const worker = start<WorkerMessage>('postgres/worker', input)
    expect((await worker.received('error')).error.codes).toContain('SCHEMA_TOO_NEW')
    expect(worker.alive).toBe(true)
    expect(linesOf(path('ledger'))).toEqual([])
    await change(url, back)
    await worker.received('running')
    expect(await worker.finish()).toMatchObject({ code: 0 })
  },
)
