// A claim that begins where the last one ended still finds what others have placed below, and gives nothing twice.
import { expect, test } from 'vitest'
import { ask, Driver } from '../../../src/conformance/driver.js'
import { insert } from '../../../src/conformance/changes.js'
import { postgres } from '../../../src/postgres.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'

test.each([[['one']], [['one', 'two']]])('lanes %j', { timeout: 60_000 }, async (names) => {
  const url = await sharedServer()
  const schema = newSchema()
  const here = new Driver(closing(postgres(url, { schema })), 'here')
  const there = new Driver(closing(postgres(url, { schema })), 'there')
  for (const [at, name] of names.entries()) await here.addMany(2_000, name, { priority: 5 * at })

  const claimed: string[] = []
  const claim = async (want: number, name?: string): Promise<number> => {
    const { asks } = await here.commit({ asks: [ask(want, name === undefined ? {} : { names: [name] })] })
    claimed.push(...asks[0]!.map(({ id }) => id))
    return asks[0]!.length
  }
  // Enough of each lane that the next claim begins behind them.
  for (const name of names) expect(await claim(1_200, name)).toBe(1_200)
  // There is no watcher here, so no notice reports what is placed below.
  const below = names.map((name, at) => insert(there.id(), name, { priority: 5 * at - 1 }))
  await there.commit({ groups: below.map((change) => [change]) })

  const left = 800 * names.length
  expect(await claim(left + 10)).toBe(left + names.length)
  expect(new Set(claimed).size).toBe(claimed.length)
  expect(claimed).toEqual(expect.arrayContaining(below.map(({ job }) => job.id)))
})
