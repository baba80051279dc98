// Writers: a batch sent again is answered and not applied; writers long silent are forgotten, sooner when there are many.
import { describe, expect, test } from 'vitest'
import type { Change } from '../../../src/job/change.js'
import { commit } from '../../../src/stores/memory/commit.js'
import { createTable } from '../../../src/stores/memory/table.js'
import type { Table } from '../../../src/stores/memory/table.js'
import { thrown } from '../../thrown.js'
import { asking, insert } from './table.making.js'

const DAY = 86_400_000

function send(table: Table, writer: string, seq: number, now = 0): ReturnType<typeof commit> {
  const groups = [[insert(`${writer}-${seq}`)]]
  return commit(table, { writer, seq, groups, renewals: [], asks: [asking(1)] }, now, false)
}

describe('a writer', () => {
  test('gets the same receipt for the same batch, which is applied once', () => {
    const table = createTable()
    const first = send(table, 'w', 1)
    const again = send(table, 'w', 1, 99)
    expect(again.receipt).toBe(first.receipt)
    expect(again.notices).toBeUndefined()
    expect(table.rows.size).toBe(1)
  })

  test('is refused a batch older than its last', () => {
    const table = createTable()
    send(table, 'w', 2)
    expect(thrown(() => send(table, 'w', 1))).toMatchObject({ code: 'WRITER_BEHIND' })
    expect(table.rows.size).toBe(1)
  })

  test('is remembered for a day while there are few', () => {
    const table = createTable()
    for (let at = 0; at < 1_000; at++) send(table, `w-${at}`, 1, at)
    send(table, 'w-0', 2, DAY - 1)
    expect(table.writers.size).toBe(1_000)
    send(table, 'w-0', 3, DAY + 10)
    expect(table.writers.size, 'w-1 to w-9 are gone').toBe(991)
  })

  test('is forgotten when there are many and it has been silent for ten minutes, never before', () => {
    const table = createTable()
    for (let at = 0; at < 1_500; at++) send(table, `w-${at}`, 1, at)
    expect(table.writers.size).toBe(1_500)
    send(table, 'w-0', 2, 600_000) // no longer silent
    send(table, 'late', 1, 600_101)
    expect(table.writers.size, 'w-1 to w-100 are gone').toBe(1_401)
    send(table, 'later', 1, DAY - 1)
    expect(table.writers.size).toBe(1_000)
    expect(thrown(() => send(table, 'w-0', 1))).toMatchObject({ code: 'WRITER_BEHIND' })
  })

  test('is remembered without the payloads of large jobs, which are read again', () => {
    const table = createTable()
    const data = JSON.stringify('x'.repeat(2 ** 20))
    const groups = [[insert('a', { data })], [insert('b', { data })]]
    const batch = { writer: 'w', seq: 1, groups, renewals: [], asks: [asking(2)] }
    const { receipt } = commit(table, batch, 0, false)
    expect(table.writers.bytes).toBeLessThan(10_000)
    expect(commit(table, batch, 0, false).receipt).toEqual(receipt)
    // One of them is gone: it could not be settled.
    const [first] = receipt.asks[0]!
    const removal = { kind: 'move', id: 'a', fence: first!.fence, held: false, to: 'removed', set: {} } as Change
    commit(table, { writer: 'v', seq: 1, groups: [[removal]], renewals: [], asks: [] }, 0, false)
    const again = commit(table, batch, 0, false).receipt
    expect(again.groups).toEqual(receipt.groups)
    expect(again.asks).toEqual([receipt.asks[0]!.slice(1)])
  })

  test('is forgotten after ten minutes where all receipts together are large', () => {
    const table = createTable()
    const data = 'x'.repeat(60_000)
    const write = (writer: string, now: number): void => {
      commit(table, { writer, seq: 1, groups: [[insert(writer, { data })]], renewals: [], asks: [] }, now, false)
    }
    for (let at = 0; at < 1_000; at++) write(`w-${at}`, at)
    expect(table.writers.bytes).toBeGreaterThan(50 * 2 ** 20)
    for (let at = 0; at < 200; at++) write(`v-${at}`, 700_000)
    expect(table.writers.bytes).toBeLessThan(65 * 2 ** 20)
  })
})
