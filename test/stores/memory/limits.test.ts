// Limits count leases, those of handlers whose job was taken away included.
import { describe, expect, test } from 'vitest'
import type { JobRecord } from '../../../src/job/job.js'
import { cancel, due, remove, settle } from '../../../src/job/lifecycle.js'
import type { Decision } from '../../../src/job/lifecycle.js'
import type { Group } from '../../../src/store/store.js'
import { checkTable } from './table.check.js'
import { asking, insert, LEASE, limit, Mill } from './table.making.js'

const ids = (jobs: readonly JobRecord[]): string[] => jobs.map((job) => job.id)

function group(decision: Decision): Group {
  if ('denied' in decision) throw new Error(decision.denied)
  return decision
}

/** A queue that gives two leases at a time and has three jobs, two of them claimed. */
function busy(): { mill: Mill; held: readonly JobRecord[] } {
  const mill = new Mill()
  mill.do(limit({ concurrency: 2 }), insert('a'), insert('b'), insert('c'))
  const held = mill.claim(3)
  expect(ids(held)).toEqual(['a', 'b'])
  return { mill, held }
}

describe('a limit', () => {
  test('lets the next in when a lease is settled, in the same commit', () => {
    const { mill, held } = busy()
    const settled = settle(held[0]!, { kind: 'returned', result: undefined, also: [] })
    const { asks } = mill.commit({ groups: [settled], asks: [asking(3)] })
    expect(ids(asks[0]!)).toEqual(['c'])
    checkTable(mill.table)
  })

  test('counts a cancelled job until its handler gives its lease up', () => {
    const { mill, held } = busy()
    mill.land(group(cancel(held[0]!)))
    expect(mill.notices?.revoked).toEqual([{ id: 'a', fence: 1, worker: 'miller', reason: 'cancelled' }])
    expect(mill.claim(3)).toEqual([])
    const { renewals, asks } = mill.commit({
      renewals: [{ id: 'a', fence: 1, lease: 0, started: true }],
      asks: [asking(3)],
    })
    expect(renewals[0]?.ok).toBe(true)
    expect(ids(asks[0]!)).toEqual(['c'])
    checkTable(mill.table)
  })

  test('counts a removed job until its lease would have been over', () => {
    const { mill, held } = busy()
    mill.land(group(remove(held[0]!)))
    mill.now += LEASE - 1
    expect(mill.claim(3)).toEqual([])
    mill.now += 1
    expect(ids(mill.claim(3))).toEqual(['c'])
    expect(mill.table.orphans.size).toBe(0)
  })

  test('is free at once when a lease that ran out is taken back', () => {
    const { mill, held } = busy()
    mill.now += LEASE
    mill.land(due(mill.job(held[0]!.id), mill.now))
    expect(mill.table.orphans.size).toBe(0)
    expect(mill.notices?.revoked).toEqual([{ id: 'a', fence: 1, worker: 'miller', reason: 'lease-lost' }])
    expect(ids(mill.claim(3))).toEqual(['a'])
  })

  test('cannot be given up twice, nor for a lease that never was', () => {
    const { mill, held } = busy()
    mill.land(group(cancel(held[0]!)))
    const givenUp = { id: 'a', fence: 1, lease: 0, started: true }
    const verdicts = mill.commit({ renewals: [givenUp, givenUp, { ...givenUp, id: 'nobody' }] }).renewals
    expect(verdicts.map((verdict) => (verdict.ok ? 'ok' : verdict.why))).toEqual(['ok', 'fence', 'missing'])
    checkTable(mill.table)
  })

  test('of a name holds back that name alone', () => {
    const mill = new Mill()
    mill.do(limit({ names: { grind: { concurrency: 1 } } }))
    mill.do(insert('a'), insert('b'), insert('c', { name: 'sift' }), insert('d', { name: 'sift' }))
    expect(ids(mill.claim(9))).toEqual(['a', 'c', 'd'])
  })

  test('keeps jobs from being leased ahead', () => {
    const mill = new Mill()
    mill.do(limit({ names: { grind: { concurrency: 5 } } }))
    mill.do(insert('a'), insert('b'), insert('c', { name: 'sift' }), insert('d', { name: 'sift', attempts: 1 }))
    const jobs = mill.claim(1, { ahead: 9 })
    expect(jobs.map((job) => [job.id, job.ahead])).toEqual([
      ['a', false],
      ['c', true],
    ])
  })

  test('hints at work when a lease ends while others wait', () => {
    const { mill, held } = busy()
    mill.land(settle(held[0]!, { kind: 'returned', result: undefined, also: [] }))
    expect([...mill.notices!.work]).toEqual(['mill'])
    mill.claim(1)
    mill.land(settle(held[1]!, { kind: 'returned', result: undefined, also: [] }))
    expect([...mill.notices!.work], 'nobody waits').toEqual([])
  })

  test('on the backlog refuses inserts and counts neither schedules nor claimed jobs', () => {
    const mill = new Mill()
    mill.do(limit({ backlog: 2 }), insert('s', { kind: 'schedule', run: { in: 5 } }))
    const { groups } = mill.do(insert('a'), insert('b', { run: { in: 5 } }), insert('c'))
    expect(groups.map((verdict) => (verdict.ok ? 'ok' : verdict.why))).toEqual(['ok', 'ok', 'full'])
    mill.claim(1)
    expect(mill.do(insert('c')).groups[0]?.ok).toBe(true)
  })

  test('of rates forgets groups whose tokens have returned, however many groups come', () => {
    const mill = new Mill()
    mill.do(limit({ group: { rate: { max: 1, per: 1_000 } } }))
    const claimFrom = (first: number, count: number): void => {
      const groups = Array.from({ length: count }, (_, at) => `g${first + at}`)
      mill.do(...groups.map((group) => insert(group, { group })))
      expect(mill.claim(count)).toHaveLength(count)
    }
    claimFrom(0, 200)
    const { rates } = mill.table.queues.get('mill')!
    expect(rates.size, 'none has returned').toBe(200)
    mill.now += 2_000
    claimFrom(200, 150)
    expect([...rates.keys()].filter((key) => Number(key.slice(2)) < 200)).toEqual([])
    expect(rates.size).toBe(150)
  })
})
