// Reads by id that are asked for at once travel together.
import { expect, test } from 'vitest'
import type { Store } from 'millrace'
import { observed } from '../observed-store.js'
import { newQueue, newStore } from '../setup.js'

/** A store that notes how many ids each read asks for. */
function counting(): { store: Store; gets: number[]; details: number[] } {
  const [gets, details]: [number[], number[]] = [[], []]
  const under = newStore()
  const store: Store = {
    ...observed(under, () => {}),
    get: (ids, tx) => {
      gets.push(ids.length)
      return under.get(ids, tx)
    },
    details: (query, tx) => {
      if (query.jobs !== undefined) details.push(query.jobs.length)
      return under.details(query, tx)
    },
  }
  return { store, gets, details }
}

test('a thousand reads by id in one turn are two calls, and each is answered with its own job', async () => {
  const { store, gets } = counting()
  const queue = newQueue({ store })
  const added = await queue.addBulk(Array.from({ length: 999 }, (_, at) => ({ name: 'work', data: at })))
  const found = await Promise.all([...added.map(({ id }) => queue.get(id)), queue.get('nobody')])
  expect(found.map((job) => job?.data)).toEqual([...added.keys(), undefined])
  expect(gets).toEqual([500, 500])
})

test('removals by id in one turn travel together', async () => {
  const { store, gets, details } = counting()
  const queue = newQueue({ store })
  const added = await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'work' })))
  expect(await Promise.all(added.map(({ id }) => queue.remove(id)))).toEqual(added.map(() => true))
  expect([gets.length < 10, details]).toEqual([true, [100]])
})

test('a read that fails fails those who asked together, and not the next', async () => {
  const { store } = counting()
  let fails = true
  const queue = newQueue({
    store: { ...store, get: (ids, tx) => (fails ? Promise.reject(new Error('no')) : store.get(ids, tx)) },
  })
  const { id } = await queue.add('work')
  const read = [queue.get(id), queue.get(id)]
  await expect(Promise.all(read)).rejects.toThrow('no')
  await expect(read[1]).rejects.toThrow('no')
  fails = false
  expect(await queue.get(id)).toMatchObject({ id })
})

test('an operation by id reads its job once; one of a handle reads it again for the handle', async () => {
  const { store, gets } = counting()
  const queue = newQueue({ store })
  const add = () => queue.add('work', 1, { delay: '1h' })
  const reads = async (operation: () => Promise<unknown>): Promise<number> => {
    const before = gets.length
    await operation()
    return gets.length - before
  }
  const jobs = await Promise.all(Array.from({ length: 8 }, add))
  expect(await reads(() => queue.cancel(jobs[0]!.id))).toBe(1)
  expect(await reads(() => queue.retry(jobs[0]!.id))).toBe(1)
  expect(await reads(() => queue.promote(jobs[1]!.id))).toBe(1)
  expect(await reads(() => queue.update(jobs[2]!.id, { data: 2 }))).toBe(1)
  expect(await reads(() => queue.remove(jobs[3]!.id))).toBe(1)
  expect(await reads(() => jobs[4]!.cancel())).toBe(2)
  expect(await reads(() => jobs[4]!.cancel())).toBe(1) // nothing has changed
  expect(await reads(() => jobs[5]!.update({ data: 2 }))).toBe(2)
  expect([jobs[4]!.state, jobs[5]!.data]).toEqual(['cancelled', 2])
})
