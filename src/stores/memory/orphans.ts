// stores/memory/orphans.ts: leases that were revoked while their handlers ran; they count against limits until they end.
import type { JobRecord, Time } from '../../job/job.js'
import type { UndoLog } from '../undo-log.js'
import { countGroupLease } from './groups.js'
import { countLease, registerName, dropNameIfUnused } from './row.js'
import type { GroupRow, NameRow, Row } from './row.js'
import { BTree } from './btree.js'

/** A lease without its job. */
export interface Orphan {
  readonly id: string
  /** The fence that its holder has. */
  readonly fence: number
  readonly worker: string | undefined
  readonly name: NameRow
  readonly group: GroupRow | undefined
  readonly until: Time
  readonly serial: number
}

const keyOf = (id: string, fence: number): string => `${fence} ${id}`

/** All orphaned leases of a table. */
export class Orphans {
  readonly #undoLog: UndoLog
  readonly #byLease = new Map<string, Orphan>()
  readonly #byEnd = new BTree<Orphan>((a, b) => a.until - b.until || a.serial - b.serial)
  #serial = 0

  constructor(undoLog: UndoLog) {
    this.#undoLog = undoLog
  }

  /** The number of orphaned leases. */
  get size(): number {
    return this.#byLease.size
  }

  /** Goes on counting a lease that was revoked. */
  add(id: string, { fence, worker }: Pick<JobRecord, 'fence' | 'worker'>, row: Row, until: Time): void {
    const existing = this.#byLease.get(keyOf(id, fence)) // of a removed job whose id was used again
    if (existing !== undefined) this.#end(existing)
    this.#begin({ id, fence, worker, name: row.lane.nameRow, group: row.group, until, serial: this.#serial++ })
  }

  /** Ends the lease of a handler that has ended. Returns the lease, if there is one. */
  end(id: string, fence: number): Orphan | undefined {
    if (this.#byLease.size === 0) return undefined
    const orphan = this.#byLease.get(keyOf(id, fence))
    if (orphan !== undefined) this.#end(orphan)
    return orphan
  }

  /** Ends the first expired lease. Returns the lease, if there is one. */
  expire(now: Time): Orphan | undefined {
    const first = this.#byEnd.min
    if (first === undefined || first.until > now) return undefined
    this.#end(first)
    return first
  }

  /** All orphaned leases. */
  values(): IterableIterator<Orphan> {
    return this.#byLease.values()
  }

  #begin(orphan: Orphan): void {
    this.#byLease.set(keyOf(orphan.id, orphan.fence), orphan)
    this.#byEnd.insert(orphan)
    registerName(orphan.name)
    countLease(orphan.name, 1)
    countGroupLease(orphan.group, 1)
    if (this.#undoLog.open) this.#undoLog.add(() => this.#end(orphan))
  }

  #end(orphan: Orphan): void {
    this.#byLease.delete(keyOf(orphan.id, orphan.fence))
    this.#byEnd.delete(orphan)
    countLease(orphan.name, -1)
    countGroupLease(orphan.group, -1)
    dropNameIfUnused(orphan.name)
    if (this.#undoLog.open) this.#undoLog.add(() => this.#begin(orphan))
  }
}
