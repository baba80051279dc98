// PostgreSQL stores for the suite: an empty schema for each case, with a second handle, and a clock that the test moves.
import { setTimeout } from 'node:timers/promises'
import { Client } from 'pg'
import type { Harness } from '../../src/conformance/harness.js'
import type { Store } from '../../src/store/store.js'
import type { PgPoolLike, PostgresJsLike } from '../../src/stores/postgres/options.js'
import { postgres } from '../../src/stores/postgres/store.js'
import { newSchema, sharedServer } from '../stores/postgres/server/shared.js'
import { RING, RING_BYTES, steppedClock } from './clock.js'

/** Schemas that a case has left, emptied, by their server: to make one takes longer than most cases. */
const emptied = new Map<string, string[]>()

/** Everything that a store writes; what it is made of stays. */
const tables = 'turn rate queue lane job log step edge key orphan cell writer peer event'.split(' ')
const sequences = 'job_order claim fence'.split(' ')

/** A store on an empty schema; `target` returns what each handle connects to. Default: the URL. */
export async function postgresHarness(
  start?: number,
  target: (url: string) => string | PgPoolLike<unknown> | PostgresJsLike = (url) => url,
): Promise<Harness> {
  const url = await sharedServer()
  const { runtime, advance } = steppedClock(start)
  const free = emptied.get(url) ?? []
  emptied.set(url, free)
  const schema = free.pop() ?? newSchema()
  const handles: Store[] = []
  const open = async (): Promise<Store> => {
    const store = postgres(target(url), {
      schema,
      runtime,
      ring: RING,
      ringBytes: RING_BYTES,
      clock: () => runtime.now(),
      connections: 4,
    })
    handles.push(store)
    await store.open()
    return store
  }
  return {
    store: await open(),
    peer: open,
    advance: async (ms) => {
      const before = runtime.now()
      await advance(ms)
      await presence(url, schema, before, runtime.now())
    },
    ring: RING,
    ringBytes: RING_BYTES,
    rowLocks: true,
    async dispose() {
      await Promise.all(handles.map((store) => store.close()))
      const client = new Client(url)
      await client.connect()
      await client.query(
        [
          ...tables.map((table) => `delete from ${schema}.${table}`),
          ...sequences.map((sequence) => `alter sequence ${schema}.${sequence} restart`),
        ].join(';'),
      )
      await client.end()
      free.push(schema)
    },
  }
}

/** Renews the rows of processes that watched before the clock was moved, so that they do not seem gone. */
async function presence(url: string, schema: string, before: number, now: number): Promise<void> {
  if (now - before < 30_000) return
  const client = new Client(url)
  await client.connect()
  const text = `select not exists (select 1 from ${schema}.peer where until > $1 and until < $2) as fresh`
  for (let tries = 0; tries < 200; tries++) {
    const { rows } = await client.query<{ fresh: boolean }>(text, [before, now + 60_000])
    if (rows[0]?.fresh === true) break
    await setTimeout(5)
  }
  await client.end()
}
