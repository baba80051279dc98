// A chain's end reaches those who wait for it, and only its end does.
import { describe, expect, test } from 'vitest'
import type { Release } from '../../../src/job/change.js'
import { settle } from '../../../src/job/lifecycle.js'
import { checkTable } from './table.check.js'
import { insert, Mill } from './table.making.js'

const ENDED: Release = { kind: 'release', chain: 'first', outcome: 'completed' }

/** A chain of two jobs, the first completed, and one that waits for the chain. */
function chained(): Mill {
  const mill = new Mill()
  mill.do(insert('first'), insert('waits', { edges: [{ on: 'first', policy: 'fail' }] }))
  const [first] = mill.claim(1)
  const continuation = insert('second', {}, { id: 'first', index: 1 })
  mill.land(settle(first!, { kind: 'returned', result: undefined, also: [], continuation }))
  return mill
}

describe('a release', () => {
  test('does nothing while a job of the chain is unfinished, whichever job sends it', () => {
    const mill = chained()
    mill.do(ENDED)
    expect(mill.job('waits')).toMatchObject({ state: 'waiting-children', pending: 1, fence: 0 })
    checkTable(mill.table)
  })

  test('does nothing to those who wait for a job that has yet to run', () => {
    const mill = new Mill()
    mill.do(insert('first'), insert('waits', { edges: [{ on: 'first', policy: 'fail' }] }), ENDED)
    expect(mill.job('waits').state).toBe('waiting-children')
  })

  test('lets them go with the last job of the chain, behind all who wait already', () => {
    const mill = chained()
    mill.do(insert('early'))
    const [second] = mill.claim(1)
    mill.land(settle(second!, { kind: 'returned', result: undefined, also: [] }))
    expect(mill.claim(9).map((job) => job.id)).toEqual(['early', 'waits'])
    mill.do(ENDED)
    expect(mill.job('waits').pending, 'an edge is counted down once').toBe(0)
  })

  test('marks a dependent that is finished already, so that its retry will see it', () => {
    const mill = chained()
    const move = { kind: 'move', held: false, place: 'old', why: undefined, closesBroken: false, set: {} } as const
    mill.land([{ ...move, id: 'waits', fence: 0, to: 'cancelled' }])
    mill.land([
      { ...move, id: 'second', fence: 0, to: 'failed' },
      { ...ENDED, outcome: 'failed' },
    ])
    expect(mill.job('waits')).toMatchObject({ state: 'cancelled', fence: 1, pending: 1, brokenAt: mill.now })
    mill.land([{ ...move, id: 'waits', fence: 1, to: 'waiting-children' }])
    expect(mill.job('waits')).toMatchObject({ state: 'waiting-children', dueAt: mill.now })
    checkTable(mill.table)
  })
})
