// Lanes that a process remembers and the server has lost, as by a failover to a standby that had not received them.
import { describe, expect, test } from 'vitest'
import { Client } from 'pg'
import { Driver } from '../../../src/conformance/driver.js'
import { insert } from '../../../src/conformance/changes.js'
import { postgres } from '../../../src/postgres.js'
import { closing } from '../../setup.js'
import { refusal } from '../sqlite/folder.js'
import { newSchema, sharedServer } from './server/shared.js'

/** Two handles, of which the first knows a lane that the server has lost; its number was the next to be given. */
async function setUp(group?: string) {
  const url = await sharedServer()
  const schema = newSchema()
  const client = new Client(url)
  await client.connect()
  const [here, there] = ['here', 'there'].map(
    (name) => new Driver(closing(postgres(url, { schema, connections: 2 })), name),
  ) as [Driver, Driver]
  const options = group === undefined ? {} : { group }
  await here.add('kept', options)
  await here.add('lost', options)
  await here.claim(9)
  const { rows } = await client.query<{ id: number }>(`select id from ${schema}.lane where name = 'lost'`)
  await client.query(`delete from ${schema}.job; delete from ${schema}.lane where name = 'lost'`)
  await client.query(`select setval(pg_get_serial_sequence('${schema}.lane', 'id'), ${rows[0]!.id}, false)`)
  return { here, there, options, client, schema, lost: rows[0]!.id }
}

const names = async (d: Driver): Promise<string[]> => (await d.claim(20)).map(({ name }) => name).toSorted()

describe('a lane that was lost', () => {
  test.each([
    ['one job', 1, undefined],
    ['many jobs', 12, undefined],
    ['jobs with a group', 3, 'g'],
  ] as const)('is made anew for %s, whatever others have made meanwhile', async (_, count, group) => {
    const { here, there, options, client } = await setUp(group)
    await there.add('other', options)
    const ids = await here.addMany(count, 'lost', options)
    expect(await names(there)).toEqual([...ids.map(() => 'lost'), 'other'].toSorted())
    await client.end()
  })

  test('is made anew by batches of other kinds', async () => {
    const { here, there, client } = await setUp()
    await there.add('other')
    await here.commit({ groups: [[insert('a', 'lost'), insert('b', 'lost', { after: ['a'] })], [insert('c', 'kept')]] })
    expect((await here.store.get(['a', 'b', 'c'])).map((job) => job?.name)).toEqual(['lost', 'lost', 'kept'])
    expect((await there.store.get(['a', 'b', 'c'])).map((job) => job?.name)).toEqual(['lost', 'lost', 'kept'])
    await client.end()
  })

  test('makes a transaction of the user begin anew', async () => {
    const { here, there, client } = await setUp()
    const batch = { writer: '', seq: 0, groups: [[insert('a', 'lost')]], renewals: [], asks: [] }
    await client.query('begin')
    expect((await refusal(here.store.commit(batch, client))).code).toBe('TRANSACTION_STALE')
    await client.query('rollback')
    await client.query('begin')
    await here.store.commit(batch, client)
    await client.query('commit')
    expect(await names(there)).toEqual(['lost'])
    await client.end()
  })

  test('does not give its number to another', async () => {
    const { there, client, schema, lost } = await setUp()
    await there.add('other')
    const { rows } = await client.query<{ id: number }>(`select id from ${schema}.lane where name = 'other'`)
    expect(rows[0]!.id).not.toBe(lost)
    await client.end()
  })
})
