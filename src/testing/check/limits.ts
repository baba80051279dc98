// testing/check/limits.ts: what groups are bounded by, and what rates let through.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { cellKey, readCell } from '../../store/settings.js'
import type { LimitCell, Rate } from '../../store/settings.js'
import type { Landing } from './history.js'
import type { Report } from './violation.js'

const LIMIT = cellKey.limit('')

/** A lease that counts. */
export interface Counted {
  readonly queue: string
  readonly group: string | undefined
}

/** Follows the limits that were set, and what was claimed under them. */
export class LimitChecks {
  readonly #report: Report
  readonly #cells = new Map<string, Partial<LimitCell>>()
  /** When jobs were claimed, since the limits last changed, by what is bounded. */
  readonly #claims = new Map<string, Time[]>()

  constructor(report: Report) {
    this.#report = report
  }

  /** After the leases have been followed; `leases` are those that count. */
  landed({ time, batch, receipt }: Landing, leases: () => Iterable<Counted>): void {
    batch.groups.forEach((group, at) => {
      if (receipt.groups[at]?.ok !== true) return
      for (const change of group) {
        if (change.kind !== 'put' || !change.key.startsWith(LIMIT)) continue
        this.#cells.set(change.key.slice(LIMIT.length), readCell<LimitCell>(change.value))
        this.#claims.clear()
      }
    })
    const jobs = receipt.asks.flat()
    if (jobs.length === 0 || this.#cells.size === 0) return
    for (const job of jobs) this.#claimed(job, receipt.now, time)
    this.#count(jobs, [...leases()], time)
  }

  #claimed({ id, queue, name, group }: JobRecord, now: Time, time: Millis): void {
    const cell = this.#cells.get(queue)
    if (cell === undefined) return
    const look = (what: string, rate: Rate | undefined): void => {
      if (rate === undefined) return
      const claims = [...(this.#claims.get(what) ?? []), now].filter((at) => at > now - rate.per)
      this.#claims.set(what, claims)
      if (claims.length <= rate.max) return
      this.#report(
        'rate',
        time,
        id,
        `${claims.length} jobs of ${what} were claimed within ${rate.per} ms, and its rate is ${rate.max}.`,
      )
    }
    look(`queue ${queue}`, cell.rate)
    look(`${queue}/${name}`, cell.names?.[name]?.rate)
    if (group !== undefined) look(`group ${group} in ${queue}`, boundOf(cell, group).rate)
  }

  /** Only what was given out is held against a limit: one that was lowered takes nothing back. */
  #count(jobs: readonly JobRecord[], leases: readonly Counted[], time: Millis): void {
    for (const { id, queue, group } of jobs) {
      const cell = this.#cells.get(queue)
      const most = cell === undefined || group === undefined ? undefined : boundOf(cell, group).concurrency
      if (most === undefined) continue
      const count = leases.filter((lease) => lease.queue === queue && lease.group === group).length
      if (count <= most) continue
      this.#report('limit', time, id, `${count} leases of group ${group} run in ${queue}, and the limit is ${most}.`)
    }
  }
}

function boundOf(cell: Partial<LimitCell>, group: string): NonNullable<LimitCell['group']> {
  return { ...cell.group, ...cell.groups?.[group] }
}
