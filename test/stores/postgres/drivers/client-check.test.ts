// Whether transactions have the server check for their client: only where it can, and where the user has not set it.
import { expect, it } from 'vitest'
import { MillraceError } from 'millrace'
import { postgres } from 'millrace/postgres'
import { clientCheck } from '../../../../src/stores/postgres/drivers/client-check.js'
import { closing } from '../../../setup.js'
import { newSchema, sharedServer } from '../server/shared.js'

const refusal = Object.assign(new Error('must be set to 0 on platforms that lack support'), { code: '22023' })

it.each([
  ['a server that can', '1s', [true, true], 1],
  ['a server for which somebody has set it', null, [false, false], 1],
  ['a server that refuses', refusal, [false, false], 1],
  ['a server that does not answer, until it does', new Error('connection reset'), [false, false], 2],
] as const)('%s', async (_, answer, expected, asked) => {
  let calls = 0
  const looks = clientCheck(async () => {
    calls++
    if (answer instanceof Error) throw answer
    return answer
  })
  expect([await looks(), await looks()]).toEqual(expected)
  expect(calls).toBe(asked)
})

it('is not asked for a transaction for which there is no connection', async () => {
  const none = new MillraceError('DATABASE_UNREACHABLE', 'Cannot connect.')
  await expect(clientCheck(() => Promise.reject(none))()).rejects.toBe(none)
})

it('lasts as long as the transaction', async () => {
  const store = closing(postgres(await sharedServer(), { schema: newSchema(), connections: 4 }))
  const current = `select current_setting('client_connection_check_interval') as looks`
  const within = await store.transact!(async (tx) => (await tx.query(current)).rows)
  expect(within).toEqual([{ looks: '1s' }])
  const outside = await store.transact!(async (tx) => {
    await tx.query('rollback') // what comes next on this connection is outside of any
    return (await tx.query(current)).rows
  })
  expect(outside).toEqual([{ looks: '0' }])
})
