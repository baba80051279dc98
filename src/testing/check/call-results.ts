// testing/check/call-results.ts: checks that results of calls are true, and that listeners receive every event once.
import { isFinished, jobStates } from '../../job/job.js'
import type { Move, Note } from '../../job/change.js'
import type { Millis } from '../../job/job.js'
import { isScheduleId } from '../../job/schedules/schedule.js'
import { isSignalId } from '../../job/signals.js'
import type { Returned, Called, Landing, EventReceived } from './simulated-history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import { isOperationId } from './operations.js'
import type { Report } from './violation.js'
import type { ScriptedResult, Work } from '../script/acting.js'

/** Tracks what the store applied, and compares the results of calls with it. */
export class CallChecks implements LedgerListener {
  readonly #report: Report
  /** The final states of each job: one for each time it ended. */
  readonly #ends = new Map<string, { readonly state: string; readonly result: string | undefined }[]>()
  readonly #numbers = new Set<number>()
  readonly #inserted = new Set<string>()
  readonly #lines = new Map<string, number>()
  readonly #open = new Map<number, Called>()

  constructor(report: Report) {
    this.#report = report
  }

  inserted(job: Tracked, { job: { data } }: { readonly job: { readonly data: string | undefined } }): void {
    this.#inserted.add(job.id)
    const work = data === undefined ? undefined : (JSON.parse(data) as Partial<Work> | null)
    if (typeof work?.n === 'number') this.#numbers.add(work.n)
  }

  noted({ id }: Tracked, { logs = [] }: Note): void {
    this.#lines.set(id, (this.#lines.get(id) ?? 0) + logs.length)
  }

  /** A call to log a line returned: the store must have one line for each such call. */
  logged(id: string, time: Millis): void {
    const left = (this.#lines.get(id) ?? 0) - 1
    if (left < 0)
      this.#report('acknowledged', time, id, 'A call of ctx.log returned, but the store does not have the line.')
    this.#lines.set(id, left)
  }

  moving({ id }: Tracked, { to, set, fence }: Move, { time }: Landing): void {
    const result = set.result === undefined ? undefined : (JSON.parse(set.result) as Partial<ScriptedResult> | null)
    if (typeof result?.run === 'number' && result.fence !== fence) {
      this.#report('settlement', time, id, `Fence ${fence} was settled with the result of fence ${result.fence}.`)
    }
    if (to !== 'removed' && !isFinished(to)) return
    const ends = this.#ends.get(id) ?? []
    this.#ends.set(id, ends)
    ends.push({ state: to, result: set.result })
  }

  called(call: Called): void {
    this.#open.set(call.number, call)
  }

  /** The open calls of a process end with it. */
  gone(process: string): void {
    for (const [number, call] of this.#open) if (call.process === process) this.#open.delete(number)
  }

  /** At the end every call of a live process has returned. */
  close(time: Millis): void {
    for (const { process, call, number } of this.#open.values()) {
      this.#report('acknowledged', time, undefined, `Call ${number} of ${process}, ${call}, never returned.`)
    }
  }

  returned(entry: Returned): void {
    this.#open.delete(entry.number)
    const { time, call, id, result } = entry
    const report = (message: string): void => this.#report('acknowledged', time, id, `${call}: ${message}`)
    if (['add', 'addBulk', 'flow', 'operate'].includes(call)) return this.#added(entry, report)
    if (id === undefined) return
    const ended = (state: string): boolean => this.#ends.get(id)?.some((end) => end.state === state) === true
    if ((call === 'cancel' || call === 'cancelOperation') && result.ok && result.value === true && !ended('cancelled'))
      report('returned that it was cancelled, but it was not.')
    if (call === 'remove' && result.ok && result.value === true && !ended('removed'))
      report('returned that it was removed, but it was not.')
    if (call !== 'result') return
    if (result.ok) {
      const value = result.value === undefined ? undefined : JSON.stringify(result.value)
      const known = this.#ends.get(id)?.some((end) => end.state === 'completed' && end.result === value) === true
      if (!known) report(`returned the result ${value}, which no run completed with.`)
    } else if (result.code === 'JOB_FAILED' && !ended('failed')) report('returned that it failed, but it did not.')
    else if (result.code === 'JOB_CANCELLED' && !ended('cancelled'))
      report('returned that it was cancelled, but it was not.')
    else if (result.code === 'JOB_REMOVED' && !ended('removed')) report('returned that it was removed, but it was not.')
  }

  #added({ n, result }: Returned, report: (message: string) => void): void {
    if (result.ok) {
      for (const { id } of [result.value].flat() as { readonly id: string }[]) {
        if (!this.#inserted.has(id)) report(`returned that ${id} was added, but it was not.`)
      }
    } else if (
      n !== undefined &&
      ['DUPLICATE_JOB', 'DEPENDENCY_MISSING'].includes(result.code) &&
      this.#numbers.has(n)
    ) {
      report(`threw ${result.code}, but the job was added.`)
    }
  }
}

const checkedTypes = new Set<string>([...jobStates, 'retrying', 'stalled', 'stale', 'removed', 'progress'])

/** Every transition is published once: by the store, and by each process that has listened from the start. */
export class EventChecks {
  /** Types of events, by the process that received them (undefined: the store), then by job. */
  readonly #received = new Map<string | undefined, Map<string, string[]>>([[undefined, new Map()]])

  received({ process, event: { id, type } }: EventReceived): void {
    if (!checkedTypes.has(type) || isSignalId(id)) return // events of signal rows are internal
    const jobs = this.#received.get(process) ?? new Map<string, string[]>()
    this.#received.set(process, jobs)
    const types = jobs.get(id)
    if (types === undefined) jobs.set(id, [type])
    else types.push(type)
  }

  close(time: Millis, expected: ReadonlyMap<string, readonly string[]>, report: Report): void {
    for (const [process, jobs] of this.#received) {
      for (const id of new Set([...expected.keys(), ...jobs.keys()])) {
        // Queues publish no such events of the rows of schedules and of operations.
        if (isSignalId(id) || (process !== undefined && (isScheduleId(id) || isOperationId(id)))) continue
        const received = (jobs.get(id) ?? []).join(' ')
        const happened = (expected.get(id) ?? []).join(' ')
        if (received !== happened)
          report('event', time, id, `${process ?? 'The store'} published "${received}", but "${happened}" happened.`)
      }
    }
  }
}
