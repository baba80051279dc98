// What the server says, as users are told it.
import { describe, expect, test } from 'vitest'
import { MillraceError } from 'millrace'
import { toStoreError } from '../../src/stores/postgres/failures.js'

/** An error as drivers give it. */
const said = (code: string, message: string): Error => Object.assign(new Error(message), { code })

describe('an error of the server’s', () => {
  test.each([
    ['54000', 'string too long to represent as jsonb string', 'DATA_TOO_LARGE', 'send a reference'],
    ['40001', 'could not serialize access due to concurrent update', 'TRANSACTION_STALE', 'run it again'],
    ['40P01', 'deadlock detected', 'DATABASE_LOCKED', 'try again'],
    ['55P03', 'canceling statement due to lock timeout', 'DATABASE_LOCKED', 'try again'],
  ])('%s is told with a code and a way out', (state, message, code, wayOut) => {
    const cause = said(state, message)
    const told = toStoreError(cause, 'millrace') as MillraceError
    expect(told).toBeInstanceOf(MillraceError)
    expect([told.code, told.cause]).toEqual([code, cause])
    expect(told.message).toContain(message)
    expect(told.message).toContain(wayOut)
  })

  test('that has no meaning of its own stays as it is', () => {
    const cause = said('22000', 'data exception')
    expect(toStoreError(cause, 'millrace')).toBe(cause)
  })
})
