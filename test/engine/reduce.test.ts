// The engine reads the jobs that a group has inserted again only if the group may have changed them.
import { expect, test } from 'vitest'
import { Notices } from '../../src/engine/notices.js'
import { applyBatch } from '../../src/engine/reduce.js'
import type { Change } from '../../src/job/change.js'
import type { JobRecord } from '../../src/job/job.js'
import { settle } from '../../src/job/lifecycle.js'
import { createTable } from '../../src/stores/memory/table.js'
import { MemoryWorkspace } from '../../src/stores/memory/workspace.js'
import { asking, insert } from '../stores/memory/table.making.js'

const NOW = 1_000_000

/** Records for which inserted jobs the engine reported that they may have changed. */
class Observed extends MemoryWorkspace {
  readonly reports: [id: string, changed: boolean][] = []

  override inserted(job: JobRecord, changed = false): JobRecord {
    this.reports.push([job.id, changed])
    return super.inserted(job)
  }
}

/** A claimed job `a`, and what a group that is made of it passes to the workspace of its inserts. */
function reportsOf(group: (a: JobRecord) => readonly Change[]): Observed['reports'] {
  const table = createTable()
  const apply = (workspace: MemoryWorkspace, parts: { groups?: readonly (readonly Change[])[]; claims?: boolean }) => {
    const asks = parts.claims ? [asking(1)] : []
    const batch = { writer: 'w', seq: 1, groups: parts.groups ?? [], renewals: [], asks }
    return applyBatch({ workspace, now: NOW, notices: new Notices(workspace, NOW, false) }, batch)
  }
  const [[a] = []] = apply(new MemoryWorkspace(table, NOW), { groups: [[insert('a')]], claims: true }).asks
  const workspace = new Observed(table, NOW)
  expect(apply(workspace, { groups: [group(a!)] }).groups[0]?.ok).toBe(true)
  return workspace.reports
}

test('a change before the inserts of a group does not count', () => {
  const continuation = insert('b', {}, { id: 'a', index: 1 })
  const group = reportsOf((a) => settle(a, { kind: 'returned', result: undefined, also: [], continuation }))
  expect(group).toEqual([['b', false]])
})

test('a change after an insert counts for all inserts of the group', () => {
  const note: Change = { kind: 'note', id: 'b', fence: 0, held: false, progress: '1' }
  expect(reportsOf(() => [insert('b'), note, insert('c')])).toEqual([
    ['b', true],
    ['c', true],
  ])
})
