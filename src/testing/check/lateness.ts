// testing/check/lateness.ts: checks that no job waits longer than a poll takes while a healthy worker has a free slot.
import type { Put } from '../../job/change.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { cellKey } from '../../store/settings.js'
import { readCell } from '../../job/limits.js'
import type { LimitCell } from '../../job/limits.js'
import type { Pauses } from './claims.js'
import type { HoldChecks } from './holds.js'
import type { Landing, RunEntry } from './simulated-history.js'
import { EPOCH } from '../world/process.js'
import type { SimulationSettings } from '../script/script.js'
import type { Report } from './violation.js'

/** The settings that the longest wait and the number of slots are derived from. */
export type LatenessSettings = Pick<SimulationSettings, 'limit' | 'concurrency' | 'pollEvery' | 'latency'>

const LIMIT = cellKey.limit('')
const PAUSE = cellKey.pause('')

/** Time for a claim in addition to the poll: several calls, one after the other. */
const SLACK: Millis = 1000

/** A job that can be claimed. */
interface Claimable {
  readonly id: string
  readonly queue: string
  readonly name: string
  readonly group: string | undefined
  /** Infinity: it cannot be claimed, or was already reported. */
  since: Millis
}

/** A worker process. */
interface WorkerProcess {
  readonly process: string
  /** The queues and names that it has claimed from; `undefined` among the names: all. */
  readonly queues: Set<string>
  readonly names: Set<string | undefined>
  /** Its claimed jobs that are still active, and its runs of handlers that have not ended, by id and fence. */
  readonly leased: Set<string>
  readonly running: Set<string>
  /** When its last fault ends. */
  faultsEnd: Millis
  /** Since when it has had a free slot; undefined: it is full, or has not claimed yet. */
  free: Millis | undefined
}

/**
 * Tracks which jobs could be claimed, and which workers could have claimed them: those that claim such jobs, have a free
 * slot, are not paused or closing, and have no fault. A job that waits for longer than the poll and a few calls take, while
 * there is such a worker, was forgotten. Queues with a limit are not checked.
 */
export class LatenessChecks {
  readonly #report: Report
  readonly #settings: LatenessSettings
  readonly #bound: Millis
  readonly #waiting = new Map<string, Claimable>()
  readonly #workers = new Map<string, WorkerProcess>()
  /** The worker that claimed each active job. */
  readonly #holders = new Map<string, { readonly worker: WorkerProcess; readonly lease: string }>()
  readonly #limited = new Set<string>()

  constructor(report: Report, settings: LatenessSettings) {
    this.#report = report
    this.#settings = settings
    this.#bound = settings.pollEvery + 10 * settings.latency + SLACK
  }

  /** Call it after `pauses` and `holds` have followed the landing. */
  landed({ time, process, batch, receipt, after }: Landing, pauses: Pauses, holds: HoldChecks): void {
    for (const { queues, handles } of batch.asks) {
      const worker = this.#worker(process)
      for (const queue of queues) worker.queues.add(queue)
      for (const { name } of handles) worker.names.add(name)
      this.#recount(worker, time)
    }
    for (const [id, record] of after) {
      if (record?.state !== 'active') this.#releaseLease(id, time)
      if (record?.kind === 'job' && record.state === 'waiting')
        this.#wait(record, this.#since(record, pauses, holds, time))
      else this.#leave(id, time)
    }
    for (const { id, fence } of receipt.asks.flat()) this.#claim(id, fence, this.#worker(process), time)
    batch.groups.forEach((group, at) => {
      for (const change of receipt.groups[at]?.ok === true ? group : []) {
        if (change.kind === 'put') this.#settingChanged(change, pauses, holds, time)
      }
    })
  }

  /** A pause, a hold or a limit changed: waiting jobs of the queue can be claimed from now on, or no longer. */
  #settingChanged({ key, value }: Put, pauses: Pauses, holds: HoldChecks, time: Millis): void {
    const prefix = [LIMIT, PAUSE].find((each) => key.startsWith(each))
    if (prefix === undefined) return
    const queue = key.slice(prefix.length)
    if (prefix === LIMIT && Object.keys(readCell<LimitCell>(value)).length > 0) this.#limited.add(queue)
    else if (prefix === LIMIT) this.#limited.delete(queue)
    for (const job of this.#waiting.values()) {
      if (job.queue !== queue) continue
      this.#check(job, time)
      job.since = this.#since(job, pauses, holds, time)
    }
  }

  /** From when on a waiting job can be claimed; Infinity: it cannot. */
  #since(job: Omit<Claimable, 'id' | 'since'>, pauses: Pauses, holds: HoldChecks, time: Millis): Millis {
    const { queue, name } = job
    const isBounded = this.#settings.limit !== undefined || this.#limited.has(queue)
    return isBounded || pauses.has(queue, name) ? Infinity : Math.max(time, holds.until(job) - EPOCH)
  }

  #wait({ id, queue, name, group }: JobRecord, since: Millis): void {
    if (!this.#waiting.has(id)) this.#waiting.set(id, { id, queue, name, group, since })
  }

  #leave(id: string, time: Millis): void {
    const job = this.#waiting.get(id)
    if (job === undefined) return
    this.#check(job, time)
    this.#waiting.delete(id)
  }

  #claim(id: string, fence: number, worker: WorkerProcess, time: Millis): void {
    this.#releaseLease(id, time)
    const lease = keyOf(id, fence)
    this.#holders.set(id, { worker, lease })
    worker.leased.add(lease)
    this.#recount(worker, time)
  }

  #releaseLease(id: string, time: Millis): void {
    const holder = this.#holders.get(id)
    if (holder === undefined) return
    this.#holders.delete(id)
    holder.worker.leased.delete(holder.lease)
    this.#recount(holder.worker, time)
  }

  /** A run starts, is aborted or ends. */
  ran({ kind, time, run }: RunEntry): void {
    if (kind === 'aborted') return
    const worker = this.#worker(run.process)
    if (kind === 'started') worker.running.add(keyOf(run.id, run.fence))
    else worker.running.delete(keyOf(run.id, run.fence))
    this.#recount(worker, time)
  }

  /** A process has a fault that lasts until then. */
  disturbed(process: string, time: Millis, until: Millis): void {
    const worker = this.#worker(process)
    this.#checkAll(worker, time)
    worker.faultsEnd = Math.max(worker.faultsEnd, until)
  }

  /** A process ended; batches that it sent may still be applied. */
  gone(process: string, time: Millis): void {
    this.disturbed(process, time, Infinity)
  }

  /** The history ends here. */
  close(time: Millis): void {
    for (const worker of this.#workers.values()) this.#checkAll(worker, time)
  }

  #worker(process: string): WorkerProcess {
    const known = this.#workers.get(process)
    if (known !== undefined) return known
    const worker: WorkerProcess = {
      process,
      queues: new Set(),
      names: new Set(),
      leased: new Set(),
      running: new Set(),
      faultsEnd: 0,
      free: undefined,
    }
    this.#workers.set(process, worker)
    return worker
  }

  /** Counts a slot for each lease and each run, even within a batch: a worker that seems full is not reported. */
  #recount(worker: WorkerProcess, time: Millis): void {
    const { leased, running, names } = worker
    let busy = leased.size
    for (const run of running) if (!leased.has(run)) busy++
    const free = names.size > 0 && busy < this.#settings.concurrency
    if (free) worker.free ??= time
    else {
      this.#checkAll(worker, time)
      worker.free = undefined
    }
  }

  #checkAll(worker: WorkerProcess, time: Millis): void {
    if (worker.free === undefined || time - Math.max(worker.free, worker.faultsEnd) <= this.#bound) return
    for (const job of this.#waiting.values()) this.#check(job, time, worker)
  }

  #check(job: Claimable, time: Millis, only?: WorkerProcess): void {
    if (time - job.since <= this.#bound) return
    for (const worker of only === undefined ? this.#workers.values() : [only]) {
      const { process, free, faultsEnd, queues, names } = worker
      if (free === undefined || !queues.has(job.queue) || !(names.has(undefined) || names.has(job.name))) continue
      const late = time - Math.max(job.since, free, faultsEnd)
      if (late <= this.#bound) continue
      const could = `${process} had a free slot for it for ${Math.round(late)} ms`
      this.#report('late', time, job.id, `It waited while ${could}; the bound is ${this.#bound} ms.`)
      job.since = Infinity // report it once
      return
    }
  }
}

function keyOf(id: string, fence: number): string {
  return `${id}@${fence}`
}
