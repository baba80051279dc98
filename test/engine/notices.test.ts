// A refused group leaves no notices, and takes none from the groups before it.
import { expect, test } from 'vitest'
import type { Notices } from '../../src/engine/notices.js'
import type { Change } from '../../src/job/change.js'
import { cancel } from '../../src/job/lifecycle.js'
import { insert, limit, Mill } from '../stores/memory/table.making.js'

const REFUSED: Change = { kind: 'note', id: 'nobody', fence: 0, held: false, progress: '1' }

/** All notices, without the events' contents. */
function shown({ work, due, revoked, events }: Notices): unknown {
  return { work: [...work], due: [...due], revoked, events: events.map(({ type, id }) => [type, id]) }
}

/** Two mills with a limit of one lease, the job `held` claimed, and `waits` behind it. */
function mills(): readonly [Mill, Mill] {
  const [one, other] = [new Mill(), new Mill()]
  for (const mill of [one, other]) {
    mill.do(limit({ concurrency: 1 }), insert('held'), insert('waits'))
    expect(mill.claim(1).map(({ id }) => id)).toEqual(['held'])
  }
  return [one, other]
}

test('a refused group leaves the notices as they were, whatever it has added', () => {
  const [plain, refusing] = mills()
  const before: Change[][] = [[insert('a', { queue: 'x' }), insert('b', { run: { in: 500 } })]]
  const cancelled = cancel(refusing.job('held')) as readonly Change[]
  const refused: Change[] = [
    insert('c', { queue: 'y' }), // work in another queue
    insert('d', { run: { in: 100 } }), // an earlier due time
    insert('e', { queue: 'y', run: { in: 100 } }), // the first due time of a queue
    ...cancelled, // a revoked lease, which makes room under the limit
    REFUSED,
  ]
  const after: Change[][] = [[insert('f', { queue: 'z' })]]
  plain.commit({ groups: [...before, ...after] })
  const { groups } = refusing.commit({ groups: [...before, refused, ...after] })
  expect(groups.map(({ ok }) => ok)).toEqual([true, false, true])
  expect(shown(refusing.notices!)).toEqual(shown(plain.notices!))
  expect([...refusing.notices!.work]).toEqual(['x', 'z'])
})

test('what a refused group has added is added again by a later one', () => {
  const [, mill] = mills()
  const group = [insert('c', { queue: 'y' }), insert('d', { queue: 'y', run: { in: 100 } })]
  mill.commit({ groups: [[...group, REFUSED], group] })
  expect([...mill.notices!.work]).toEqual(['y'])
  expect([...mill.notices!.due]).toEqual([['y', mill.now + 100]])
})
