// Writers: a batch sent again is answered and not applied; writers long silent are forgotten, sooner when there are many.
import { describe, expect, test } from 'vitest'
import { reduce } from '../../src/stores/memory/reduce.js'
import { createTable } from '../../src/stores/memory/table.js'
import type { Table } from '../../src/stores/memory/table.js'
import { thrown } from '../thrown.js'
import { asking, insert } from './table.making.js'

const DAY = 86_400_000

function send(table: Table, writer: string, seq: number, now = 0): ReturnType<typeof reduce> {
  const groups = [[insert(`${writer}-${seq}`)]]
  return reduce(table, { writer, seq, groups, renewals: [], asks: [asking(1)] }, now, false)
}

describe('a writer', () => {
  test('gets the same receipt for the same batch, which is applied once', () => {
    const table = createTable()
    const first = send(table, 'w', 1)
    const again = send(table, 'w', 1, 99)
    expect(again.receipt).toBe(first.receipt)
    expect(again.news).toBeUndefined()
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
})
