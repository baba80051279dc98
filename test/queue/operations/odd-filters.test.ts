// Filters in rare cases: names that objects have members of, ids of rare characters, lists that change while they are read.
import { describe, expect, test } from 'vitest'
import { memory } from 'millrace/memory'
import type { Store } from 'millrace'
import { newQueue } from '../../setup.js'
import { served, stores } from '../../stores.js'

const make = stores()

describe.each(served)('on %s', (kind) => {
  test('jobs may be called as members of objects are, and nothing but their counts shows it', async () => {
    const queue = newQueue({ store: await make(kind) })
    for (const name of ['__proto__', 'constructor', 'toString']) await queue.add(name, 1, { tags: [name] })
    for (const request of [
      { all: true },
      { where: { tags: { any: ['__proto__', 'constructor', 'toString'] } } },
    ] as const) {
      const plan = await queue.plan({ do: 'remove', ...request })
      expect(Object.entries(plan.names)).toEqual([
        ['__proto__', { waiting: 1 }],
        ['constructor', { waiting: 1 }],
        ['toString', { waiting: 1 }],
      ])
    }
    expect(Object.keys((await queue.health()).names)).toEqual(['__proto__', 'constructor', 'toString'])
    for (const object of [Object.prototype, Object, Object.prototype.toString])
      expect(object).not.toHaveProperty('waiting')
  })

  test('ids are found by their beginning whatever characters follow', async () => {
    const queue = newQueue({ store: await make(kind) })
    const last = '\u{10FFFF}'
    for (const id of ['p', 'pa', 'p\uFFFF', `p${last}`, `p${last}z`, `p${last.repeat(127)}`, 'q'])
      await queue.add('job', 1, { id })
    expect(await queue.count({ idPrefix: 'p' })).toEqual({ count: 6, exact: true })
    expect(await queue.count({ idPrefix: `p${last}` })).toEqual({ count: 3, exact: true })
    expect((await queue.list({ idPrefix: `p${last}` })).jobs).toHaveLength(3)
  })

  test('a cursor of another queue is refused', async () => {
    const store = await make(kind)
    const [here, there] = [newQueue({ store, name: 'here' }), newQueue({ store, name: 'there' })]
    for (const queue of [here, there]) await queue.addBulk([{ name: 'job' }, { name: 'job' }])
    const { cursor } = await here.list({ limit: 1 })
    expect((await here.list({ cursor })).jobs).toHaveLength(1)
    await expect(there.list({ cursor })).rejects.toMatchObject({ code: 'INVALID_CURSOR' })
  })

  test('a call by a filter that few of many jobs match begins no operation', async () => {
    const queue = newQueue({ store: await make(kind) })
    await queue.addBulk(
      Array.from({ length: 4_500 }, (_, n) => ({ name: 'job', options: { id: `${n % 1_000}-${n}` } })),
    )
    expect(await queue.cancel({ worker: 'nobody' })).toBe(0)
    expect(await queue.remove({ idPrefix: '7-', created: { from: '1h' } })).toBe(5)
    expect((await queue.operations()).operations).toEqual([])
  })
})

test('a search loses no job when others leave the list while it reads', async () => {
  const store = memory()
  const queue = newQueue({ store })
  const matching = await queue.addBulk(Array.from({ length: 4 }, () => ({ name: 'job', data: 'wanted' })))
  const [first] = await queue.addBulk([{ name: 'job', data: 'other' }])
  let reads = 0
  const find: Store['find'] = store.find.bind(store)
  store.find = async (...query) => {
    if (++reads === 2) await first!.remove()
    return find(...query)
  }
  const found: string[] = []
  let cursor: string | undefined
  do {
    const page = await queue.list({ search: { data: 'wanted' }, limit: 2, cursor })
    expect(page.jobs.length).toBeLessThanOrEqual(2)
    found.push(...page.jobs.map(({ id }) => id))
    ;({ cursor } = page)
  } while (cursor !== undefined)
  expect(found.toSorted()).toEqual(matching.map(({ id }) => id).toSorted())
})

test('a declared name that objects have a member of has no age in a queue that was never used', async () => {
  const queue = newQueue({ jobs: { constructor: {} } as never })
  expect((await queue.health()).names['constructor']).not.toHaveProperty('oldestWaiting')
})
