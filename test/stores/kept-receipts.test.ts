// Receipts kept for batches that are sent again: bounded in number and in bytes.
import { expect, test } from 'vitest'
import type { Batch, Receipt } from '../../src/store/store.js'
import { bytesOfReceipt, KeptReceipts } from '../../src/stores/kept-receipts.js'
import { commit } from '../../src/stores/memory/commit.js'
import { createTable } from '../../src/stores/memory/table.js'
import { insert } from './memory/table.making.js'

const MIB = 2 ** 20

function batchOf(writer: string, seq: number, bytes: number): Batch {
  const groups = [[insert(`${writer}-${seq}`, { data: 'x'.repeat(bytes) })]]
  return { writer, seq, groups, renewals: [], asks: [] }
}

const receiptOf = (batch: Batch): Receipt => commit(createTable(), batch, 0, false).receipt

test('the payloads of jobs count, in what was added, refused and claimed', () => {
  const added = receiptOf(batchOf('w', 1, MIB))
  const [job] = (added.groups[0] as { inserted: Receipt['asks'][number] }).inserted
  const refused: Receipt = { ...added, groups: [{ ok: false, change: 0, why: 'duplicate', id: job!.id, job: job! }] }
  const claimed: Receipt = { ...added, groups: [], asks: [[job!], [job!]] }
  expect([added, refused, claimed].map((each) => Math.floor(bytesOfReceipt(each) / MIB))).toEqual([1, 1, 2])
})

test('the oldest are given up when there are too many bytes, and their numbers stay known', () => {
  const kept = new KeptReceipts(100)
  const batches = Array.from({ length: 20 }, (_, n) => batchOf(`w-${n}`, 7, MIB))
  for (const batch of batches) kept.keep(receiptOf(batch))
  expect(kept.bytes).toBeLessThanOrEqual(8 * MIB)
  expect(batches.map((batch) => kept.of(batch) !== undefined)).toEqual(batches.map((_, n) => n >= 13))
  expect(batches.map(({ writer }) => kept.last(writer))).toEqual(batches.map(() => 7))
})

test('one that is too large by itself is not kept, and neither is a number that is not the last', () => {
  const kept = new KeptReceipts(100)
  const large = batchOf('w', 1, 9 * MIB)
  kept.keep(receiptOf(large))
  expect(kept.bytes).toBe(0)
  expect(kept.of(large)).toBeUndefined()
  const small = batchOf('w', 2, 10)
  kept.keep(receiptOf(small))
  expect(kept.of(small)).toBeDefined()
  expect(kept.of(large)).toBeUndefined()
})

test('the longest silent writer is forgotten when there are too many', () => {
  const kept = new KeptReceipts(2)
  const forgotten = ['a', 'b', 'a', 'c'].map((writer, n) => kept.keep(receiptOf(batchOf(writer, n + 1, 10))))
  expect(forgotten).toEqual([undefined, undefined, undefined, 'b'])
  expect([kept.last('a'), kept.last('b'), kept.last('c')]).toEqual([3, undefined, 4])
})
