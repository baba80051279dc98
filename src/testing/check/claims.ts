// testing/check/claims.ts: checks what claims return, that pauses and dedup keys hold, and that batches are applied once.
import type { Insert, When } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { Millis, Time } from '../../job/job.js'
import { cellKey } from '../../store/settings.js'
import type { PauseCell } from '../../job/limits.js'
import type { Landing } from './simulated-history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'
import type { Work } from '../script/acting.js'

/** Each claim returns only jobs of its queues and names, no more than it wants, and none that is paused. */
export function checkClaims({ time, process, batch, receipt }: Landing, pauses: Pauses, report: Report): void {
  batch.asks.forEach((ask, at) => {
    const jobs = receipt.asks[at] ?? []
    if (jobs.length > ask.want + ask.ahead) {
      report('claim', time, undefined, `${process} claimed ${ask.want}+${ask.ahead} jobs and got ${jobs.length}.`)
    }
    for (const { id, queue, name, worker } of jobs) {
      const handled = ask.handles.some((each) => each.name === undefined || each.name === name)
      if (!handled || !ask.queues.includes(queue) || worker !== ask.worker) {
        report('claim', time, id, `${process} got a job of ${queue}/${name}, which it did not claim.`)
      }
      if (pauses.has(queue, name))
        report('pause', time, id, `${process} got a job of ${queue}/${name}, which is paused.`)
    }
  })
}

/** What is paused, according to the cells that were written. */
export class Pauses {
  readonly #cells = new Map<string, PauseCell>()

  has(queue: string, name: string): boolean {
    const cell = this.#cells.get(cellKey.pause(queue))
    return cell !== undefined && (cell.all || cell.names.includes(name))
  }

  follow({ batch, receipt }: Landing): void {
    batch.groups.forEach((group, at) => {
      if (receipt.groups[at]?.ok !== true) return
      for (const change of group) {
        if (change.kind !== 'put' || !change.key.startsWith(cellKey.pause(''))) continue
        if (change.hold !== undefined) continue // pauses stay as they are
        if (change.value === undefined) this.#cells.delete(change.key)
        else this.#cells.set(change.key, JSON.parse(change.value) as PauseCell)
      }
    })
  }
}

/** When jobs expire, according to the changes that were written, and whether one is started after that. */
export class Expiries {
  readonly #times = new Map<string, Time>()

  follow({ time, process, batch, receipt }: Landing, report: Report): void {
    batch.groups.forEach((group, at) => {
      const verdict = receipt.groups[at]
      if (verdict?.ok !== true) return
      for (const change of group) {
        if (change.kind === 'insert') this.#set(change.job.id, change.job.expires ?? null, receipt.now)
        else if (change.kind === 'move') this.#set(change.id, change.set.expires, receipt.now)
      }
    })
    for (const { id, attempt } of receipt.asks.flat()) {
      const at = this.#times.get(id)
      if (at === undefined || attempt > 1 || at > receipt.now) continue
      report('expiry', time, id, `${process} got a job that had expired ${receipt.now - at} ms before.`)
    }
  }

  #set(id: string, when: When | null | undefined, now: Time): void {
    if (when === null) this.#times.delete(id)
    else if (when !== undefined) this.#times.set(id, 'in' in when ? now + when.in : when.at)
  }
}

/** Each batch is applied once, in order, and a replay returns the same receipt. */
export class Replays {
  readonly #last = new Map<string, number>()

  follow({ time, process, batch, replay }: Landing, report: Report): void {
    const last = this.#last.get(batch.writer) ?? 0
    if (!replay && batch.seq <= last) {
      const after = batch.seq === last ? 'a second time' : `after batch ${last}`
      report('replay', time, undefined, `Batch ${batch.seq} of ${process} (${batch.writer}) was applied ${after}.`)
    }
    this.#last.set(batch.writer, Math.max(last, batch.seq))
  }
}

interface Key {
  readonly key: string
  readonly window: Millis | undefined
}

/** Checks dedup keys as callers intended them: from the data of scripted jobs, from the options of others. */
export class KeyChecks implements LedgerListener {
  readonly #report: Report
  readonly #keys = new Map<string, Key>()
  readonly #holders = new Map<string, Tracked[]>()
  readonly #windows = new Map<string, Time>()

  constructor(report: Report) {
    this.#report = report
  }

  inserted(job: Tracked, change: Insert, { time, receipt }: Landing): void {
    const key = intendedKey(change)
    if (key === undefined) return
    this.#keys.set(job.id, key)
    if (key.window === undefined) return this.#hold(job, key.key, time)
    const until = this.#windows.get(key.key) ?? 0
    if (until > receipt.now) {
      this.#report(
        'dedup',
        time,
        job.id,
        `It was added with key ${key.key} ${until - receipt.now} ms before the window of that key ended.`,
      )
    }
    this.#windows.set(key.key, receipt.now + key.window)
  }

  revived(job: Tracked, { time }: Landing): void {
    const key = this.#keys.get(job.id)
    if (key !== undefined && key.window === undefined) this.#hold(job, key.key, time)
  }

  #hold(job: Tracked, key: string, time: Millis): void {
    const unfinished = (this.#holders.get(key) ?? []).filter(
      (other) => other !== job && other.state !== 'removed' && !isFinished(other.state),
    )
    for (const other of unfinished)
      this.#report('dedup', time, job.id, `It has key ${key}, and so does the unfinished job ${other.id}.`)
    this.#holders.set(key, [...unfinished, job])
  }
}

function intendedKey({ job }: Insert): Key | undefined {
  const work = job.data === undefined ? undefined : (JSON.parse(job.data) as Partial<Work> | null)
  if (typeof work?.n === 'number' && Array.isArray(work.runs)) {
    return work.key === undefined ? undefined : { key: `${job.queue}/${work.key}`, window: work.window }
  }
  return job.dedup === undefined ? undefined : { key: job.dedup.key, window: job.dedup.window }
}
