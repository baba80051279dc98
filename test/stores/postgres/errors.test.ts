// How errors of the server are translated for users.
import { describe, expect, onTestFinished, test } from 'vitest'
import { MillraceError, Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import {
  encoded,
  isServerError,
  refuseTooLarge,
  sqlStateOf,
  toStoreError,
} from '../../../src/stores/postgres/errors.js'
import { ownServer } from './server/shared.js'

/** An error as drivers give it. */
const serverError = (code: string, message: string): Error => Object.assign(new Error(message), { code })

describe('an error of the server’s', () => {
  test.each([
    ['54000', 'string too long to represent as jsonb string', 'DATA_TOO_LARGE', 'send a reference'],
    ['XX000', 'invalid memory alloc request size 1073741824', 'DATA_TOO_LARGE', 'send a reference'],
    ['40001', 'could not serialize access due to concurrent update', 'TRANSACTION_STALE', 'run it again'],
    ['40P01', 'deadlock detected', 'DATABASE_LOCKED', 'try again'],
    ['55P03', 'canceling statement due to lock timeout', 'DATABASE_LOCKED', 'try again'],
  ])('%s is translated with a code and a way out', (state, message, code, wayOut) => {
    const cause = serverError(state, message)
    const translated = toStoreError(cause, 'millrace') as MillraceError
    expect(translated).toBeInstanceOf(MillraceError)
    expect([translated.code, translated.cause]).toEqual([code, cause])
    expect(translated.message).toContain(message)
    expect(translated.message).toContain(wayOut)
  })

  test('is not waited for where what is sent is too long for a string, or for the server', () => {
    expect(() => encoded(() => 'x'.repeat(2 ** 29).repeat(2))).toThrow(MillraceError)
    const put = { kind: 'put', key: 'key', value: 'x'.repeat(47), version: 0, events: [] } as const
    expect(() => refuseTooLarge([[put], [put]], 100)).toThrow('Nothing was written')
    expect(() => refuseTooLarge([[put], [put]], 101)).not.toThrow()
  })

  test.each(['EPIPE', 'EBADF', 'ECONNRESET', 'CONNECTION_CLOSED'])(
    'is not seen in %s, by which a connection was lost',
    (code) => {
      const lost = serverError(code, 'write failed')
      expect([sqlStateOf(lost), isServerError(lost)]).toEqual([undefined, false])
    },
  )

  test('that has no meaning of its own stays as it is', () => {
    const cause = serverError('22000', 'data exception')
    expect(toStoreError(cause, 'millrace')).toBe(cause)
  })
})

test('a transaction with more user-given ids than the server has room for locks is refused with the way out', async () => {
  const server = await ownServer({ settings: { max_locks_per_transaction: 10, max_connections: 20, fsync: 'off' } })
  onTestFinished(() => server.close())
  const store = postgres(server.url)
  onTestFinished(() => store.close())
  const queue = new Queue('work', { store, logger: false })
  const many = (count: number, own: boolean): { name: string; data: number; options: object }[] =>
    Array.from({ length: count }, (_, n) => ({ name: 'chore', data: n, options: own ? { id: `own-${n}` } : {} }))
  const doomed = queue.transaction(() => queue.addBulk(many(5_000, true)))
  await expect(doomed).rejects.toMatchObject({
    code: 'TRANSACTION_TOO_LARGE',
    message: expect.stringContaining('raise max_locks_per_transaction') as string,
    cause: { code: '53200' },
  })
  expect((await queue.counts()).waiting).toBe(0)
  await queue.transaction(() => queue.addBulk(many(5_000, false)))
  expect((await queue.counts()).waiting).toBe(5_000)
})
