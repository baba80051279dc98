// testing/check/answers.ts: what callers were told must be true, and what listeners heard must be all.
import { isFinished, jobStates } from '../../job/job.js'
import type { Move, Note } from '../../job/change.js'
import type { Millis } from '../../job/job.js'
import { isScheduleId } from '../../job/schedule.js'
import { isSignalId } from '../../job/signals.js'
import type { Answer, Called, Landing, Told } from './history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'
import type { ScriptedResult, Work } from '../script/acting.js'

/** Follows what landed, to judge what was said. */
export class AnswerChecks implements LedgerListener {
  readonly #report: Report
  /** What each job came to, each time it ended. */
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

  /** A handler was told that a line of its is in the log: there must be one for each time. */
  logged(id: string, time: Millis): void {
    const left = (this.#lines.get(id) ?? 0) - 1
    if (left < 0) this.#report('acknowledged', time, id, 'A handler was told of a line in its log that is not there.')
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

  /** The callers of a process end with it. */
  gone(process: string): void {
    for (const [number, call] of this.#open) if (call.process === process) this.#open.delete(number)
  }

  /** Everybody who lives has been answered by now. */
  close(time: Millis): void {
    for (const { process, call, number } of this.#open.values()) {
      this.#report(
        'acknowledged',
        time,
        undefined,
        `${process} was never told what became of its call ${number}, ${call}.`,
      )
    }
  }

  answered(answer: Answer): void {
    this.#open.delete(answer.number)
    const { time, call, id, said } = answer
    const lie = (message: string): void => this.#report('acknowledged', time, id, `${call}: ${message}`)
    if (call === 'add' || call === 'addBulk' || call === 'flow') return this.#added(answer, lie)
    if (id === undefined) return
    const ended = (state: string): boolean => this.#ends.get(id)?.some((end) => end.state === state) === true
    if (call === 'cancel' && said.ok && said.value === true && !ended('cancelled')) lie('told that it was cancelled.')
    if (call === 'remove' && said.ok && said.value === true && !ended('removed')) lie('told that it was removed.')
    if (call !== 'result') return
    if (said.ok) {
      const value = said.value === undefined ? undefined : JSON.stringify(said.value)
      const known = this.#ends.get(id)?.some((end) => end.state === 'completed' && end.result === value) === true
      if (!known) lie(`told the result ${value}, which no run has come to.`)
    } else if (said.code === 'JOB_FAILED' && !ended('failed')) lie('told that it failed.')
    else if (said.code === 'JOB_CANCELLED' && !ended('cancelled')) lie('told that it was cancelled.')
    else if (said.code === 'JOB_REMOVED' && !ended('removed')) lie('told that it was removed.')
  }

  #added({ n, said }: Answer, lie: (message: string) => void): void {
    if (said.ok) {
      for (const { id } of [said.value].flat() as { readonly id: string }[]) {
        if (!this.#inserted.has(id)) lie(`told that ${id} was added.`)
      }
    } else if (n !== undefined && ['DUPLICATE_JOB', 'DEPENDENCY_MISSING'].includes(said.code) && this.#numbers.has(n)) {
      lie(`told that it was refused (${said.code}), and it was added.`)
    }
  }
}

const judged = new Set<string>([...jobStates, 'retrying', 'stalled', 'stale', 'removed', 'progress'])

/** Every transition is announced once: at the store, and to whoever listened in a process from the beginning. */
export class EventChecks {
  /** By who heard them, then by job. */
  readonly #heard = new Map<string | undefined, Map<string, string[]>>([[undefined, new Map()]])

  heard({ process, event: { id, type } }: Told): void {
    if (!judged.has(type) || isSignalId(id)) return // those of signals are nobody's
    const jobs = this.#heard.get(process) ?? new Map<string, string[]>()
    this.#heard.set(process, jobs)
    const types = jobs.get(id)
    if (types === undefined) jobs.set(id, [type])
    else types.push(type)
  }

  close(time: Millis, expected: ReadonlyMap<string, readonly string[]>, report: Report): void {
    for (const [process, jobs] of this.#heard) {
      for (const id of new Set([...expected.keys(), ...jobs.keys()])) {
        // Queues publish no events of the rows of schedules.
        if (isSignalId(id) || (process !== undefined && isScheduleId(id))) continue
        const heard = (jobs.get(id) ?? []).join(' ')
        const due = (expected.get(id) ?? []).join(' ')
        if (heard !== due)
          report('event', time, id, `${process ?? 'The store'} told "${heard}", and "${due}" happened.`)
      }
    }
  }
}
