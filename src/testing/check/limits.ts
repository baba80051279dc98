// testing/check/limits.ts: checks the concurrency limits of groups, and the rates of queues, names and groups.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { cellKey } from '../../store/settings.js'
import { readCell } from '../../job/limits.js'
import type { LimitCell, Rate } from '../../job/limits.js'
import type { Landing } from './simulated-history.js'
import type { Report } from './violation.js'

const LIMIT = cellKey.limit('')

/** A lease that counts against limits. */
export interface Counted {
  readonly queue: string
  readonly group: string | undefined
}

/** Tracks the limits that were set, and the claims under them. */
export class LimitChecks {
  readonly #report: Report
  readonly #cells = new Map<string, Partial<LimitCell>>()
  /** Times of claims since the limits last changed, by what the rate applies to. */
  readonly #claims = new Map<string, Time[]>()

  constructor(report: Report) {
    this.#report = report
  }

  /** Call it after the leases are up to date. `leases` returns those that count against limits. */
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
    const check = (what: string, rate: Rate | undefined): void => {
      if (rate === undefined) return
      const claims = [...(this.#claims.get(what) ?? []), now].filter((at) => at > now - rate.per)
      this.#claims.set(what, claims)
      if (claims.length <= rate.max) return
      this.#report(
        'rate',
        time,
        id,
        `${claims.length} jobs of ${what} were claimed within ${rate.per} ms, but its rate is ${rate.max}.`,
      )
    }
    check(`queue ${queue}`, cell.rate)
    check(`${queue}/${name}`, cell.names?.[name]?.rate)
    if (group !== undefined) check(`group ${group} in ${queue}`, limitsOf(cell, group).rate)
  }

  /** Checks only the jobs that were just claimed: lowering a limit revokes no lease. */
  #count(jobs: readonly JobRecord[], leases: readonly Counted[], time: Millis): void {
    for (const { id, queue, group } of jobs) {
      const cell = this.#cells.get(queue)
      const limit = cell === undefined || group === undefined ? undefined : limitsOf(cell, group).concurrency
      if (limit === undefined) continue
      const count = leases.filter((lease) => lease.queue === queue && lease.group === group).length
      if (count <= limit) continue
      this.#report('limit', time, id, `Group ${group} has ${count} leases in ${queue}, but its limit is ${limit}.`)
    }
  }
}

function limitsOf(cell: Partial<LimitCell>, group: string): NonNullable<LimitCell['group']> {
  return { ...cell.group, ...cell.groups?.[group] }
}
