// Writers that go on under other names, on every store: what is sent again is answered once, and every count is exact.
import { describe, expect, it } from 'vitest'
import { memory } from 'millrace/memory'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { Batcher } from '../../src/store/batcher.js'
import type { Committer } from '../../src/store/batcher.js'
import { connect } from '../../src/store/connection.js'
import { insert } from '../../src/conformance/changes.js'
import { systemRuntime } from '../../src/store/runtime.js'
import type { Store } from '../../src/store/store.js'
import { newSchema, sharedServer } from '../stores/postgres/server/shared.js'
import { closing } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'

const file = freshFolder()

/** Two handles on the same data. */
const kinds: Readonly<Record<string, () => Promise<readonly [Store, Store]>>> = {
  memory: async () => {
    const store = closing(memory())
    return [store, store]
  },
  SQLite: async () => [closing(sqlite(file('tenure.db'))), closing(sqlite(file('tenure.db')))],
  PostgreSQL: async () => {
    const url = await sharedServer()
    const schema = newSchema()
    return [closing(postgres(url, { schema })), closing(postgres(url, { schema }))]
  },
}

describe.each(Object.entries(kinds))('on %s', (_, open) => {
  it('answers that are lost at every turn, also at a change of names', async () => {
    const [here, there] = await open()
    await here.open()
    await there.open()
    const names = new Set<string>()
    let sent = 0
    const losing: Committer = {
      name: here.name,
      commit: async (batch) => {
        names.add(batch.writer)
        // What is sent again reaches a handle that has kept no answer.
        if (++sent % 2 === 0) return there.commit(batch)
        await here.commit(batch)
        throw new Error('lost')
      },
    }
    const system = systemRuntime()
    const hurried = { ...system, timer: (_delay: number, work: () => void) => system.timer(0, work) }
    const lane = new Batcher(losing, hurried, newSchema(), { tenure: 3 })
    for (let n = 0; n < 30; n++) {
      const verdict = await lane.commit([insert(`job ${n}`, n % 2 === 0 ? 'even' : 'odd')])
      expect(verdict).toMatchObject({ ok: true, inserted: [{ id: `job ${n}` }] })
    }
    expect([sent, names.size]).toEqual([60, 10])
    const [tally] = await here.tally(['mill'])
    expect(tally).toMatchObject({
      names: { even: { waiting: 15 }, odd: { waiting: 15 } },
      lifetime: { added: 30, completed: 0 },
    })
  })
})

it('PostgreSQL has its writers renamed, and others not', async () => {
  const url = await sharedServer()
  for (const [store, renamed] of [
    [postgres(url, { schema: newSchema() }), true],
    [memory(), false],
  ] as const) {
    closing(store)
    const names = new Set<string>()
    const { commit } = store
    store.commit = (batch) => {
      names.add(batch.writer)
      return commit.call(store, batch)
    }
    const { main } = connect(store)
    for (let n = 0; n < 1_002; n++) await main.commit([insert(`job ${n}`, 'work')])
    expect(names.size).toBe(renamed ? 2 : 1)
    expect((await store.tally(['mill']))[0]).toMatchObject({ lifetime: { added: 1_002 } })
  }
})
