// Records are read in portions that are bounded in bytes as well as in number.
import { expect, test } from 'vitest'
import type { JobRecord } from '../../src/job/job.js'
import { recordsOf } from '../../src/upkeep/due-records.js'
import { record } from '../job/lifecycle.records.js'

/** Reads all of some jobs, each of so many bytes; answers how many each read was for, and the ids in order. */
async function readAll(count: number, bytes: number, room?: () => Promise<number>) {
  const reads: number[] = []
  const found: string[] = []
  const get = async (ids: readonly string[]): Promise<JobRecord[]> => {
    reads.push(ids.length)
    return ids.map((id) => record({ id, data: 'x'.repeat(bytes) }))
  }
  const ids = Array.from({ length: count }, (_, n) => `${n}`)
  for await (const records of recordsOf({ get }, ids, room)) found.push(...records.map(({ id }) => id))
  return { reads, found, ids }
}

test('small jobs are read fifty at a time', async () => {
  const { reads, found, ids } = await readAll(200, 100)
  expect(found).toEqual(ids)
  expect(reads).toEqual([8, 16, 32, 50, 50, 44])
})

test('large jobs are read a few at a time, and one at least', async () => {
  const { reads, found, ids } = await readAll(24, 2 ** 20)
  expect(found).toEqual(ids)
  expect(reads).toEqual([8, 7, 7, 2])
  expect((await readAll(12, 20 * 2 ** 20)).reads).toEqual([8, 1, 1, 1, 1])
})

test('no more are read than there is room for', async () => {
  const room = [5, 3, 0]
  const { reads, found } = await readAll(20, 100, async () => room.shift()!)
  expect(reads).toEqual([5, 3])
  expect(found.length).toBe(8)
})
