// The PostgreSQL store judges time by the server's own clock, which no test can move: the cases that wait for short times run
// by it, too.
import { Client } from 'pg'
import { describe, expect, test } from 'vitest'
import { conformanceCases, runCase } from 'millrace/conformance'
import type { Harness } from 'millrace/conformance'
import { newSchema, sharedServer } from '../stores/postgres/server/shared.js'
import { postgres } from '../../src/stores/postgres/store.js'
import type { Store } from '../../src/store/store.js'

/** A store that goes by the server's clock; to move it is to wait for it. */
async function serverClockHarness(): Promise<Harness> {
  const url = await sharedServer()
  const schema = newSchema()
  const handles: Store[] = []
  const client = new Client(url)
  await client.connect()
  const open = async (): Promise<Store> => {
    const store = postgres(url, { schema, connections: 4 })
    handles.push(store)
    await store.open()
    return store
  }
  return {
    store: await open(),
    peer: open,
    advance: async (ms) => void (await client.query('select pg_sleep($1)', [(ms + 1) / 1_000])),
    ticks: true,
    rowLocks: true,
    async dispose() {
      await Promise.all(handles.map((store) => store.close()))
      await client.query(`drop schema if exists ${schema} cascade`)
      await client.end()
    },
  }
}

describe('by the clock of the server', () => {
  for (const story of conformanceCases.filter(({ area }) => area === 'transactions')) {
    test(story.title, async () => {
      expect(await runCase(serverClockHarness, story)).toBe('passed')
    })
  }
})
