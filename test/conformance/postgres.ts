// PostgreSQL stores for the suite: a schema of its own for each case, with a second handle on it; the clock moves only when told.
import { setTimeout } from 'node:timers/promises'
import { Client } from 'pg'
import type { Harness } from '../../src/store/conformance/harness.js'
import type { Store } from '../../src/store/store.js'
import type { PgPoolLike, PostgresJsLike } from '../../src/stores/postgres/options.js'
import { postgres } from '../../src/stores/postgres/store.js'
import { newSchema, sharedServer } from '../postgres/shared.js'
import { RING, steppedClock } from './clock.js'

/** A store on a fresh schema; `target` makes what each handle is given, the URL unless told. */
export async function postgresHarness(
  start?: number,
  target: (url: string) => string | PgPoolLike<unknown> | PostgresJsLike = (url) => url,
): Promise<Harness> {
  const url = await sharedServer()
  const { runtime, advance } = steppedClock(start)
  const schema = newSchema()
  const handles: Store[] = []
  const open = async (): Promise<Store> => {
    const store = postgres(target(url), { schema, runtime, ring: RING, clock: () => runtime.now(), connections: 4 })
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
    rowLocks: true,
    async dispose() {
      await Promise.all(handles.map((store) => store.close()))
      const client = new Client(url)
      await client.connect()
      await client.query(`set client_min_messages = warning; drop schema ${schema} cascade`)
      await client.end()
    },
  }
}

/** Those who watched before the clock was moved say again that they do; what comes next is not to find them gone. */
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
