// testing/check/leases.ts: checks leases: who settles and reaps them, how many there are, and which handlers run under them.
import type { Move } from '../../job/change.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { Landing, Run, RunEntry } from './simulated-history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import { EPOCH } from '../world/process.js'
import type { SimulationSettings } from '../script/script.js'
import type { Report } from './violation.js'

interface Lease {
  readonly queue: string
  readonly group: string | undefined
  readonly ahead: boolean
  until: Time
  /** Its job was revoked before the lease ended. */
  orphaned: boolean
}

interface Running extends Run {
  readonly since: Millis
  /** The reason of its abort, if it was aborted. */
  aborted: string | undefined
}

/** The settings that limit leases and runs. */
export type LeaseSettings = Pick<SimulationSettings, 'limit' | 'concurrency' | 'abandonAfter'>

/** Tracks every lease and every run. */
export class LeaseChecks implements LedgerListener {
  readonly #report: Report
  readonly #settings: LeaseSettings
  readonly #leases = new Map<string, Lease>()
  readonly #settled = new Set<string>()
  readonly #running = new Map<string, Running>()

  constructor(report: Report, settings: LeaseSettings) {
    this.#report = report
    this.#settings = settings
  }

  claimed(job: Tracked, record: JobRecord): void {
    const { leaseUntil = 0, ahead, fence, group } = record
    this.#leases.set(keyOf(job.id, fence), { queue: job.queue, group, ahead, until: leaseUntil, orphaned: false })
  }

  moving(job: Tracked, move: Move, landing: Landing): void {
    const key = keyOf(job.id, move.fence)
    if (move.held) this.#settle(job, move, landing, key)
    else if (job.state === 'active') this.#revoke(job, move, landing, key)
  }

  #settle(job: Tracked, move: Move, { time, process, receipt }: Landing, key: string): void {
    const by = `${process} settled fence ${move.fence} as ${move.to}`
    if (this.#settled.has(key)) this.#report('settlement', time, job.id, `${by}, but it was settled before.`)
    else if (!this.#leases.has(key)) this.#report('settlement', time, job.id, `${by}, but there is no such lease.`)
    else if (job.leaseUntil <= receipt.now) {
      this.#report('settlement', time, job.id, `${by}, ${receipt.now - job.leaseUntil} ms after the lease expired.`)
    }
    this.#settled.add(key)
    this.#leases.delete(key)
  }

  #revoke(job: Tracked, move: Move, { time, process, receipt }: Landing, key: string): void {
    const left = job.leaseUntil - receipt.now
    if (move.why === 'stalled' || move.set.error?.code === 'JOB_EXHAUSTED') {
      if (left > 0) this.#report('lease', time, job.id, `${process} reaped it ${left} ms before its lease expired.`)
      const run = this.#running.get(`${process} ${key}`)
      if (run !== undefined && run.aborted === undefined)
        this.#report('upkeep', time, job.id, `${process} reaped it while it was running it itself.`)
    }
    const lease = this.#leases.get(key)
    if (lease === undefined) return
    lease.orphaned = true
    lease.until = job.leaseUntil
    if (left <= 0) this.#leases.delete(key)
  }

  /** Call it after the ledger has applied the landing. */
  landed({ time, process, batch, receipt }: Landing, jobs: ReadonlyMap<string, Tracked>): void {
    const { now } = receipt
    batch.renewals.forEach(({ id, fence, lease }, at) => {
      const key = keyOf(id, fence)
      const known = this.#leases.get(key)
      if (receipt.renewals[at]?.ok !== true || known === undefined) return
      if (lease > 0) known.until = jobs.get(id)?.leaseUntil ?? 0
      else if (known.orphaned) {
        this.#leases.delete(key)
        if (this.#running.has(`${process} ${key}`)) {
          this.#report('limit', time, id, `${process} released its lease while its handler was running.`)
        }
      }
    })
    const { limit } = this.#settings
    if (limit === undefined || receipt.asks.every((jobs) => jobs.length === 0)) return
    const counts = new Map<string, number>()
    for (const { queue } of this.counting(now)) counts.set(queue, (counts.get(queue) ?? 0) + 1)
    for (const [queue, count] of counts) {
      if (count <= limit) continue
      this.#report('limit', time, undefined, `Queue ${queue} has ${count} leases, but its limit is ${limit}.`)
    }
  }

  /** The leases that count against limits. */
  *counting(now: Time): Generator<Lease> {
    for (const lease of this.#leases.values()) if (lease.until > now) yield lease
  }

  /** A run starts, is aborted or ends. */
  ran(entry: RunEntry): void {
    const { time, run } = entry
    const key = `${run.process} ${keyOf(run.id, run.fence)}`
    if (entry.kind === 'ended') this.#running.delete(key)
    else if (entry.kind === 'aborted') {
      const known = this.#running.get(key)
      if (known !== undefined) known.aborted ??= entry.reason
    } else {
      for (const other of this.#running.values()) {
        if (other.process !== run.process || other.id !== run.id) continue
        if (this.#isAbandoned(other, time)) continue
        const still = `fence ${other.fence} was running (${other.aborted ?? 'not aborted'})`
        this.#report('handler', time, run.id, `${run.process} started fence ${run.fence} while ${still}.`)
      }
      const lease = this.#leases.get(keyOf(run.id, run.fence))
      const late = lease === undefined || lease.ahead ? 0 : EPOCH + Math.floor(time) - lease.until
      if (late > 0) this.#report('lease', time, run.id, `${run.process} started it ${late} ms after its lease expired.`)
      this.#running.set(key, { ...run, since: time, aborted: undefined })
      this.#countSlots(run, time)
    }
  }

  /** A worker abandons a run that ignores its timeout, because it cannot stop it. */
  #isAbandoned({ since, timeout }: Running, time: Millis): boolean {
    return timeout !== undefined && time >= since + timeout + this.#settings.abandonAfter
  }

  #countSlots({ process }: Run, time: Millis): void {
    const calls = new Set<unknown>()
    for (const run of this.#running.values()) {
      if (run.process === process && !this.#isAbandoned(run, time)) calls.add(run.call ?? run)
    }
    const count = calls.size
    if (count <= this.#settings.concurrency) return
    this.#report(
      'handler',
      time,
      undefined,
      `${process} runs ${count} handlers, but has ${this.#settings.concurrency} slots.`,
    )
  }

  /** The runs of a process end with it. */
  gone(process: string): void {
    for (const [key, run] of this.#running) if (run.process === process) this.#running.delete(key)
  }
}

function keyOf(id: string, fence: number): string {
  return `${id}@${fence}`
}
