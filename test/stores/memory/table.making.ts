// Short words for tests of the table: batches, jobs and asks, the plainest there are.
import type { Change, Insert, Put } from '../../../src/job/change.js'
import type { JobHeader, JobRecord, Millis, Time } from '../../../src/job/job.js'
import { create } from '../../../src/job/lifecycle.js'
import type { JobSpec } from '../../../src/job/lifecycle.js'
import { cellKey } from '../../../src/store/settings.js'
import type { LimitCell, PauseCell } from '../../../src/job/limits.js'
import type { Ask, Group, Receipt, Renewal } from '../../../src/store/store.js'
import type { Notices } from '../../../src/engine/notices.js'
import { commit } from '../../../src/stores/memory/commit.js'
import { createTable } from '../../../src/stores/memory/table.js'
import type { Table } from '../../../src/stores/memory/table.js'

/** The lease of every claim. */
export const LEASE: Millis = 30_000

/** The insert of a job in queue `mill`, called `grind` by default. */
export function insert(id: string, over: Partial<JobSpec> = {}, chain?: { id: string; index: number }): Insert {
  return create(
    {
      id,
      kind: 'job',
      queue: 'mill',
      name: 'grind',
      version: 1,
      data: undefined,
      priority: 0,
      lifo: false,
      attempts: 3,
      backoff: undefined,
      timeout: undefined,
      run: undefined,
      parentId: undefined,
      group: undefined,
      dedup: undefined,
      keep: undefined,
      extras: undefined,
      edges: [],
      ...over,
    },
    chain,
  )
}

/** The limits of queue `mill`. */
export function limit(cell: Omit<LimitCell, 'by'>, version = 0): Put {
  return put(cellKey.limit('mill'), { ...cell, by: 'queue' } satisfies LimitCell, version)
}

/** The pauses of queue `mill`. */
export function pause(cell: PauseCell, version = 0): Put {
  return put(cellKey.pause('mill'), cell, version)
}

function put(key: string, value: unknown, version: number): Put {
  return { kind: 'put', key, value: JSON.stringify(value), version, events: [] }
}

/** A claim of jobs of `mill`, of every name by default. */
export function asking(want: number, over: Partial<Ask> = {}): Ask {
  return { worker: 'miller', queues: ['mill'], handles: [{ name: undefined, lease: LEASE }], want, ahead: 0, ...over }
}

/** Freezes a record that the table has given away: it must never write to it again. */
export function handOut(job: JobHeader): void {
  Object.freeze(job)
}

/** A table with a clock of its own, which commits batch after batch. */
export class Mill {
  readonly table: Table = createTable()
  now: Time = 1_000_000
  /** The notices of the last commit. */
  notices: Notices | undefined
  #seq = 0

  /** Commits whole groups, renewals and asks. */
  commit(parts: { groups?: readonly Group[]; renewals?: readonly Renewal[]; asks?: readonly Ask[] }): Receipt {
    const { groups = [], renewals = [], asks = [] } = parts
    const { receipt, notices } = commit(
      this.table,
      { writer: 'test', seq: ++this.#seq, groups, renewals, asks },
      this.now,
      true,
    )
    this.notices = notices
    for (const verdict of [...receipt.groups, ...receipt.renewals]) {
      for (const job of verdict.ok ? verdict.inserted : [verdict.job]) if (job !== undefined) handOut(job)
    }
    for (const job of receipt.asks.flat()) handOut(job)
    return receipt
  }

  /** Commits each change as a group of its own. */
  do(...changes: Change[]): Receipt {
    return this.commit({ groups: changes.map((change) => [change]) })
  }

  /** Claims jobs. */
  claim(want: number, over: Partial<Ask> = {}): readonly JobRecord[] {
    return this.commit({ asks: [asking(want, over)] }).asks[0]!
  }

  /** Commits a group that must be applied. */
  land(group: Group): void {
    const [verdict] = this.commit({ groups: [group] }).groups
    if (!verdict!.ok) throw new Error(`refused: ${verdict!.why} ${verdict!.id}`)
  }

  /** The record of a job as it is now, which must be there. */
  job(id: string): JobRecord {
    const row = this.table.rows.get(id)
    if (row === undefined) throw new Error(`no job ${id}`)
    return { ...row.job }
  }
}
