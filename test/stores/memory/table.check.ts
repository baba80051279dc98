// Verifies every index of a table against its rows, and writes a table down so that two can be compared.
import { isDeepStrictEqual } from 'node:util'
import { expect } from 'vitest'
import { isFinished, jobStates } from '../../../src/job/job.js'
import type { JobRecord, JobState } from '../../../src/job/job.js'
import { dueAt } from '../../../src/job/lifecycle.js'
import { chainEnd, listed, createQueue } from '../../../src/stores/memory/row.js'
import { isBacklog } from '../../../src/job/limits.js'
import type { Lane, NameRow, QueueRow, Row } from '../../../src/stores/memory/row.js'
import type { Orphan } from '../../../src/stores/memory/orphans.js'
import type { Table } from '../../../src/stores/memory/table.js'

const idsOf = (rows: Iterable<Row>): string[] => Array.from(rows, (row) => row.job.id)
const bySeq = (a: Row, b: Row): number => a.seq - b.seq
const byPlace = (a: Row, b: Row): number => a.job.priority - b.job.priority || a.job.ord - b.job.ord || a.seq - b.seq
const byTime = (a: Row, b: Row): number => a.job.dueAt! - b.job.dueAt! || a.seq - b.seq

/** Fails unless every index holds exactly what follows from the rows, in its order. */
export function checkTable(table: Table): void {
  expect(table.undoLog.open, 'the undoLog is closed between groups').toBe(false)
  const rows = [...table.rows.values()].toSorted(bySeq)
  for (const row of rows) checkRow(table, row)
  for (const queue of table.queues.values()) checkQueue(table, queue, rows)
  checkChains(table, rows)
  checkChildren(table, rows)
  checkEdges(table, rows)
  checkKeys(table, rows)
  expect(
    [...table.logs.keys()].filter((id) => !table.rows.has(id)),
    'logs of no job',
  ).toEqual([])
}

function checkRow(table: Table, row: Row): void {
  const { job } = row
  expect(table.rows.get(job.id)).toBe(row)
  expect(job.dueAt, `dueAt of ${job.id}`).toBe(dueAt(job))
  expect([row.lane.nameRow.queue.name, row.lane.name, row.lane.version]).toEqual([job.queue, job.name, job.version])
  expect(table.queues.get(job.queue)?.names.get(job.name), `the name of ${job.id}`).toBe(row.lane.nameRow)
  expect(row.lane.nameRow.lanes.get(job.group === undefined ? job.version : -job.version)).toBe(row.lane)
  expect(job.leaseUntil !== undefined, `a lease only while active: ${job.id}`).toBe(job.state === 'active')
  expect(job.finishedAt !== undefined, `finishedAt only when finished: ${job.id}`).toBe(isFinished(job.state))
  if (job.state === 'waiting') {
    const expiry = job.attempt === 0 ? job.expiresAt : undefined
    expect(job.dueAt, `a waiting job is due by its expiry alone: ${job.id}`).toBe(expiry)
  }
}

function checkQueue(table: Table, queue: QueueRow, all: readonly Row[]): void {
  const rows = all.filter((row) => row.job.queue === queue.name)
  const jobs = rows.filter((row) => row.job.kind === 'job')
  for (const state of jobStates) {
    const expected = jobs.filter((row) => row.job.state === state)
    expect(idsOf(listed(queue, state).ascend()), `${queue.name} ${state}`).toEqual(idsOf(expected))
  }
  expect(idsOf(queue.schedules.ascend())).toEqual(idsOf(rows.filter((row) => row.job.kind === 'schedule')))
  const timed = rows.filter((row) => row.job.dueAt !== undefined).toSorted(byTime)
  expect(idsOf(queue.leased.ascend())).toEqual(idsOf(timed.filter((row) => row.job.state === 'active')))
  expect(idsOf(queue.timed.ascend())).toEqual(idsOf(timed.filter((row) => row.job.state !== 'active')))
  expect(queue.backlog).toBe(jobs.filter((row) => isBacklog(row.job.state)).length)

  const orphans = [...table.orphans.values()].filter((orphan) => orphan.name.queue === queue)
  const active = jobs.filter((row) => row.job.state === 'active')
  expect(queue.leases, `leases of ${queue.name}`).toBe(active.length + orphans.length)
  const named = new Set([...rows.map((row) => row.job.name), ...orphans.map((orphan) => orphan.name.name)])
  expect([...queue.names.keys()].toSorted()).toEqual([...named].toSorted())
  const ready: Lane[] = []
  for (const name of queue.names.values()) {
    checkName(name, rows, orphans.filter((orphan) => orphan.name === name).length)
    for (const lane of name.lanes.values()) if (lane.rows.size > 0) ready.push(lane)
  }
  expect(queue.ready).toEqual(new Set(ready))
  checkGroups(queue, rows, orphans)
}

function checkName(name: NameRow, all: readonly Row[], orphans: number): void {
  const rows = all.filter((row) => row.lane.nameRow === name)
  const jobs = rows.filter((row) => row.job.kind === 'job')
  const inState = (state: JobState): Row[] => jobs.filter((row) => row.job.state === state)
  expect(name.rows).toBe(rows.length)
  expect(name.counts).toEqual(jobStates.map((state) => inState(state).length))
  expect(name.leases).toBe(inState('active').length + orphans)
  for (const lane of name.lanes.values()) {
    const expected = inState('waiting').filter((row) => row.lane === lane)
    expect(idsOf(lane.rows.ascend())).toEqual(idsOf(expected.toSorted(byPlace)))
  }
}

function checkGroups(queue: QueueRow, rows: readonly Row[], orphans: readonly Orphan[]): void {
  const whose = (row: Row): string | undefined => row.job.group
  const named = [...rows.map(whose), ...orphans.map((orphan) => orphan.group?.name)]
  expect(new Set(queue.groups.keys())).toEqual(new Set(named.filter((name) => name !== undefined)))
  for (const group of queue.groups.values()) {
    const own = rows.filter((row) => whose(row) === group.name)
    for (const row of own) expect(row.group).toBe(group)
    const jobs = own.filter((row) => row.job.kind === 'job')
    const inState = (...states: JobState[]): Row[] => jobs.filter((row) => states.includes(row.job.state))
    expect(idsOf(group.rows.ascend())).toEqual(idsOf(own.toSorted((a, b) => a.seq - b.seq)))
    expect(new Set(group.backlog.ascend())).toEqual(new Set(inState('waiting', 'delayed', 'waiting-children')))
    const left = orphans.filter((orphan) => orphan.group === group).length
    expect(group.leases).toBe(inState('active').length + left)
    const waiting = inState('waiting')
    expect(new Set(group.waiting.keys())).toEqual(new Set(waiting.map((row) => row.lane)))
    for (const [lane, line] of group.waiting) {
      const expected = waiting.filter((row) => row.lane === lane)
      expect(idsOf(line.ascend())).toEqual(idsOf(expected.toSorted(byPlace)))
    }
  }
}

function checkChains(table: Table, rows: readonly Row[]): void {
  const joined = grouped(rows, (row) => row.job.chainId)
  for (const [id, members] of joined) {
    const last = members.toSorted((a, b) => a.job.chainIndex - b.job.chainIndex || a.seq - b.seq).at(-1)!
    const ended = members.every((row) => isFinished(row.job.state))
    for (const row of members)
      expect(chainEnd(row)?.state, `end of chain ${id}`).toBe(ended ? last.job.state : undefined)
    const chain = table.chains.get(id)
    if (chain !== undefined) expect(new Set(chain.rows.ascend())).toEqual(new Set(members))
    else expect(idsOf(members)).toEqual([id])
    for (const row of members) expect(row.chain).toBe(chain)
  }
  expect([...table.chains.keys()].filter((id) => !joined.has(id))).toEqual([])
}

function checkChildren(table: Table, rows: readonly Row[]): void {
  const parents = grouped(
    rows.filter((row) => row.job.parentId !== undefined),
    (row) => row.job.parentId!,
  )
  expect(new Set(table.children.keys())).toEqual(new Set(parents.keys()))
  for (const [id, children] of parents) expect(idsOf(table.children.get(id)!.ascend())).toEqual(idsOf(children))
}

function checkEdges(table: Table, rows: readonly Row[]): void {
  const edges = [...table.edges.values()]
  expect(
    edges.filter((edge) => !table.rows.has(edge.dependent)),
    'edges of no job',
  ).toEqual([])
  for (const { job } of rows) {
    const own = table.edges.of(job.id)
    const undecided = own.filter((edge) => edge.state === 'open' || edge.state === 'broken')
    expect(job.pending, `pending of ${job.id}`).toBe(undecided.length)
    expect(job.brokenAt !== undefined, `brokenAt of ${job.id}`).toBe(own.some((edge) => edge.state === 'broken'))
    for (const edge of own) expect(table.edges.on(edge.chain)?.has(edge)).toBe(true)
    if (job.state === 'waiting-children') expect(job.pending).toBeGreaterThan(0)
  }
}

function checkKeys(table: Table, rows: readonly Row[]): void {
  for (const key of table.keys.values()) {
    if (key.until !== undefined) continue
    const holder = table.rows.get(key.id)?.job
    expect(holder !== undefined && !isFinished(holder.state), `who holds ${key.key}`).toBe(true)
  }
  for (const { job } of rows) {
    if (job.dedup === undefined || job.dedup.window !== undefined || isFinished(job.state)) continue
    expect([...table.keys.values()].find((key) => key.key === job.dedup!.key)?.id).toBe(job.id)
  }
}

/** Everything that a table holds, as data; the counters that give out numbers aside. */
export function dump(table: Table): unknown {
  return {
    rows: sorted(table.rows.values(), (row) => row.job.id).map((row): [number, JobRecord] => [row.seq, { ...row.job }]),
    edges: sorted(table.edges.values(), (edge) => `${edge.dependent} ${edge.chain}`).map((edge) => ({ ...edge })),
    keys: sorted(table.keys.values(), (key) => key.key),
    orphans: sorted(table.orphans.values(), (orphan) => `${orphan.id} ${orphan.fence}`).map((orphan) => ({
      ...orphan,
      name: orphan.name.name,
    })),
    logs: sorted(table.logs, ([id]) => id).map(([id, lines]) => [id, [...lines]]),
    cells: sorted(table.cells.values(), (cell) => cell.key),
    queues: sorted(table.queues.values(), (queue) => queue.name)
      .map(settingsOf)
      .filter((queue) => !isDeepStrictEqual({ ...queue, name: '' }, settingsOf(createQueue('')))), // as good as none
  }
}

function settingsOf(queue: QueueRow): Record<string, unknown> {
  return {
    name: queue.name,
    lifetime: { ...queue.lifetime },
    leases: queue.leases,
    backlog: [queue.backlog, queue.bounds.backlog],
    limits: [queue.bounds.limited, queue.bounds.limit, [...queue.bounds.limitedNames]],
    pauses: [queue.bounds.paused, [...queue.bounds.pausedNames]],
    names: [...queue.names.keys()].toSorted(),
  }
}

function grouped(rows: readonly Row[], key: (row: Row) => string): Map<string, Row[]> {
  const groups = new Map<string, Row[]>()
  for (const row of rows) groups.set(key(row), [...(groups.get(key(row)) ?? []), row])
  return groups
}

function sorted<T>(items: Iterable<T>, key: (item: T) => string): T[] {
  return [...items].toSorted((a, b) => (key(a) < key(b) ? -1 : 1))
}
