// The turn that a queue has come to, by priority: kept while a job of that priority may go by it, and forgotten afterwards.
import { DatabaseSync } from '@photostructure/sqlite'
import { describe, expect, test } from 'vitest'
import { Driver } from '../../src/conformance/driver.js'
import { complete, handBack } from '../../src/conformance/changes.js'
import type { JobRecord } from '../../src/job/job.js'
import { postgres } from '../../src/stores/postgres/store.js'
import { memory } from '../../src/stores/memory/store.js'
import { sqlite } from '../../src/stores/sqlite/store.js'
import { closing } from '../setup.js'
import { newDatabase } from './postgres/server/shared.js'
import { rows } from './postgres/server/clients.js'
import { commit } from '../../src/stores/memory/commit.js'
import { createTable } from '../../src/stores/memory/table.js'
import { asking, insert } from './memory/table.making.js'

const PRIORITIES = 30

/** Jobs of one group in many priorities, each done before the next; those of priority 0 stay in hand. */
async function passing(d: Driver): Promise<readonly JobRecord[]> {
  await d.addMany(3, 'work', { group: 'first', priority: 0 })
  const held = await d.claim(3)
  for (let priority = 1; priority <= PRIORITIES; priority++) {
    await d.addMany(3, 'work', { group: 'g', priority })
    for (const job of await d.claim(3)) await d.land(...complete(job))
  }
  return held
}

/** One that is handed back stands before those who came later, whatever was forgotten meanwhile. */
async function inOrder(d: Driver, held: readonly JobRecord[]): Promise<void> {
  await d.land(handBack(held[2]!))
  await d.addMany(3, 'late', { group: 'second', priority: 0 })
  expect((await d.claim(1)).map(({ id }) => id)).toEqual([held[2]!.id])
  expect((await d.claim(9)).map(({ name }) => name)).toEqual(['late', 'late', 'late'])
}

describe('turns of priorities without jobs are forgotten, those of jobs in hand are not', () => {
  test('in memory', async () => {
    const table = createTable()
    for (let priority = 0; priority <= PRIORITIES; priority++) {
      const groups = [1, 2, 3].map((n) => [insert(`${priority}-${n}`, { group: 'g', priority })])
      const { receipt } = commit(
        table,
        { writer: 'w', seq: 2 * priority + 1, groups, renewals: [], asks: [asking(3)] },
        0,
        false,
      )
      const ends = priority === 0 ? [] : receipt.asks[0]!.map((job) => complete(job))
      commit(table, { writer: 'w', seq: 2 * priority + 2, groups: ends, renewals: [], asks: [] }, 0, false)
    }
    const { come } = table.queues.get('mill')!
    expect(come.size).toBeLessThan(8)
    expect([...come.keys()]).toContain(0)
    const d = new Driver(closing(memory()), 'd')
    await inOrder(d, await passing(d))
  })

  test('on SQLite', async () => {
    const handle = new DatabaseSync(':memory:')
    const d = new Driver(closing(sqlite(handle)), 'd')
    const held = await passing(d)
    const kept = handle.prepare("SELECT what FROM millrace_counter WHERE kind = 'turn'").all() as { what: string }[]
    expect(kept.length).toBeLessThan(8)
    expect(kept.map(({ what }) => what)).toContain('0')
    await inOrder(d, held)
  })

  test('on PostgreSQL', async () => {
    const url = await newDatabase()
    const d = new Driver(closing(postgres(url)), 'd')
    const held = await passing(d)
    await d.addMany(3, 'work', { group: 'g', priority: 5 })
    await d.claim(1, { worker: 'other' })
    await rows(url, 'select millrace.tidy_v1(null, 10000, 67108864)')
    const kept = await rows<{ priority: string }>(url, 'select priority from millrace.turn order by priority')
    expect(kept.map(({ priority }) => Number(priority))).toEqual([0, 5])
    // One that waits though its turn was forgotten: others stand where it does.
    await rows(url, 'delete from millrace.turn where priority = 5')
    await d.addMany(1, 'late', { group: 'h', priority: 5 })
    expect((await d.claim(3, { names: ['work', 'late'] })).map(({ name }) => name)).toEqual(['work', 'late', 'work'])
    await inOrder(d, held)
  })
})
