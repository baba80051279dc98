// testing/check/lateness.ts: a job that a worker could have started and did not, for longer than anything explains.
import type { Put } from '../../job/change.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { cellKey, readCell } from '../../store/settings.js'
import type { LimitCell } from '../../store/settings.js'
import type { Pauses } from './claims.js'
import type { Landing, RunEntry } from './history.js'
import type { SimulationSettings } from '../script/script.js'
import type { Report } from './violation.js'

/** What the bound is derived from, and what makes a worker full. */
export type LatenessSettings = Pick<SimulationSettings, 'limit' | 'concurrency' | 'pollEvery' | 'latency'>

const LIMIT = cellKey.limit('')
const PAUSE = cellKey.pause('')

/** What a claim takes besides the poll: calls there and back, one after the other. */
const SLACK: Millis = 1000

/** A job that can be claimed. */
interface Claimable {
  readonly id: string
  readonly queue: string
  readonly name: string
  /** Infinity: it cannot be claimed, or was judged. */
  since: Millis
}

/** A worker process. */
interface Server {
  readonly process: string
  /** The queues and names that it has asked for; `undefined` among the names: all. */
  readonly queues: Set<string>
  readonly names: Set<string | undefined>
  /** Jobs that it has claimed and that are still active, and runs of handlers that have not ended, by id and fence. */
  readonly leased: Set<string>
  readonly running: Set<string>
  /** From when on nothing is wrong with it any more. */
  calm: Millis
  /** Since when it has had a free slot; undefined: it is full, or has not asked yet. */
  free: Millis | undefined
}

/**
 * Follows which jobs could be claimed, and which workers could have claimed them: those that have asked for such jobs, have a
 * free slot, are not paused or closing, and to which nothing has happened. A job that waits beside one of these for longer
 * than the poll and a few calls take was forgotten. Queues under a limit are left out.
 */
export class LatenessChecks {
  readonly #report: Report
  readonly #settings: LatenessSettings
  readonly #bound: Millis
  readonly #waiting = new Map<string, Claimable>()
  readonly #servers = new Map<string, Server>()
  /** Who claimed each active job. */
  readonly #holders = new Map<string, { readonly server: Server; readonly lease: string }>()
  readonly #limited = new Set<string>()

  constructor(report: Report, settings: LatenessSettings) {
    this.#report = report
    this.#settings = settings
    this.#bound = settings.pollEvery + 10 * settings.latency + SLACK
  }

  /** After `pauses` has followed the landing. */
  landed({ time, process, batch, receipt, after }: Landing, pauses: Pauses): void {
    for (const { queues, handles } of batch.asks) {
      const server = this.#server(process)
      for (const queue of queues) server.queues.add(queue)
      for (const { name } of handles) server.names.add(name)
      this.#recount(server, time)
    }
    for (const [id, record] of after) {
      if (record?.state !== 'active') this.#letGo(id, time)
      if (record?.kind === 'job' && record.state === 'waiting') this.#wait(record, pauses, time)
      else this.#leave(id, time)
    }
    for (const { id, fence } of receipt.asks.flat()) this.#claim(id, fence, this.#server(process), time)
    batch.groups.forEach((group, at) => {
      for (const change of receipt.groups[at]?.ok === true ? group : []) {
        if (change.kind === 'put') this.#bounded(change, pauses, time)
      }
    })
  }

  /** A pause or a limit has changed: what waits in the queue can be claimed from now on, or not any more. */
  #bounded({ key, value }: Put, pauses: Pauses, time: Millis): void {
    const prefix = [LIMIT, PAUSE].find((each) => key.startsWith(each))
    if (prefix === undefined) return
    const queue = key.slice(prefix.length)
    if (prefix === LIMIT && Object.keys(readCell<LimitCell>(value)).length > 0) this.#limited.add(queue)
    else if (prefix === LIMIT) this.#limited.delete(queue)
    for (const job of this.#waiting.values()) {
      if (job.queue !== queue) continue
      this.#judge(job, time)
      job.since = this.#isFree(job, pauses) ? time : Infinity
    }
  }

  #isFree({ queue, name }: Pick<Claimable, 'queue' | 'name'>, pauses: Pauses): boolean {
    return this.#settings.limit === undefined && !this.#limited.has(queue) && !pauses.has(queue, name)
  }

  #wait(record: JobRecord, pauses: Pauses, time: Millis): void {
    const { id, queue, name } = record
    if (this.#waiting.has(id)) return
    this.#waiting.set(id, { id, queue, name, since: this.#isFree(record, pauses) ? time : Infinity })
  }

  #leave(id: string, time: Millis): void {
    const job = this.#waiting.get(id)
    if (job === undefined) return
    this.#judge(job, time)
    this.#waiting.delete(id)
  }

  #claim(id: string, fence: number, server: Server, time: Millis): void {
    this.#letGo(id, time)
    const lease = keyOf(id, fence)
    this.#holders.set(id, { server, lease })
    server.leased.add(lease)
    this.#recount(server, time)
  }

  #letGo(id: string, time: Millis): void {
    const holder = this.#holders.get(id)
    if (holder === undefined) return
    this.#holders.delete(id)
    holder.server.leased.delete(holder.lease)
    this.#recount(holder.server, time)
  }

  /** Follows what happens to a run. */
  ran({ kind, time, run }: RunEntry): void {
    if (kind === 'aborted') return
    const server = this.#server(run.process)
    if (kind === 'started') server.running.add(keyOf(run.id, run.fence))
    else server.running.delete(keyOf(run.id, run.fence))
    this.#recount(server, time)
  }

  /** Something has happened to a process, after which it is well again. */
  disturbed(process: string, time: Millis, until: Millis): void {
    const server = this.#server(process)
    this.#judgeAll(server, time)
    server.calm = Math.max(server.calm, until)
  }

  /** A process has ended; what it sent may still land. */
  gone(process: string, time: Millis): void {
    this.disturbed(process, time, Infinity)
  }

  /** The history ends here. */
  close(time: Millis): void {
    for (const server of this.#servers.values()) this.#judgeAll(server, time)
  }

  #server(process: string): Server {
    const known = this.#servers.get(process)
    if (known !== undefined) return known
    const server: Server = {
      process,
      queues: new Set(),
      names: new Set(),
      leased: new Set(),
      running: new Set(),
      calm: 0,
      free: undefined,
    }
    this.#servers.set(process, server)
    return server
  }

  /** Each lease and each run counts as a slot, those of a batch too: a worker that seems full is not blamed. */
  #recount(server: Server, time: Millis): void {
    const { leased, running, names } = server
    let busy = leased.size
    for (const run of running) if (!leased.has(run)) busy++
    const free = names.size > 0 && busy < this.#settings.concurrency
    if (free) server.free ??= time
    else {
      this.#judgeAll(server, time)
      server.free = undefined
    }
  }

  #judgeAll(server: Server, time: Millis): void {
    if (server.free === undefined || time - Math.max(server.free, server.calm) <= this.#bound) return
    for (const job of this.#waiting.values()) this.#judge(job, time, server)
  }

  #judge(job: Claimable, time: Millis, by?: Server): void {
    if (time - job.since <= this.#bound) return
    for (const server of by === undefined ? this.#servers.values() : [by]) {
      const { process, free, calm, queues, names } = server
      if (free === undefined || !queues.has(job.queue) || !(names.has(undefined) || names.has(job.name))) continue
      const late = time - Math.max(job.since, free, calm)
      if (late <= this.#bound) continue
      const could = `${process} had a free slot for it for ${Math.round(late)} ms`
      this.#report('late', time, job.id, `It waited, and ${could}; ${this.#bound} ms is the most.`)
      job.since = Infinity // once is enough
      return
    }
  }
}

function keyOf(id: string, fence: number): string {
  return `${id}@${fence}`
}
