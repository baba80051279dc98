// stores/memory/notices.ts: collects the notices of one commit: events, and hints about work, due times and revoked leases.
import type { CellEvent, Move } from '../../job/change.js'
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Revoked } from '../../store/store.js'
import type { StoreEventType } from '../../job/events.js'
import { cellEvent, draft, drained, entered, reason } from '../../job/events.js'
import type { EventDraft } from '../../job/events.js'
import type { UndoLog } from './undo-log.js'
import { isPaused, listed } from './row.js'
import type { QueueRow, Row } from './row.js'

/** The notices of a commit in progress. */
export class Notices {
  readonly now: Time
  /** Whether events are recorded; if not, none is created. */
  readonly recording: boolean
  readonly events: EventDraft[] = []
  readonly revoked: Revoked[] = []
  readonly #undoLog: UndoLog
  readonly #work = new Set<QueueRow>()
  readonly #due = new Map<QueueRow, Time>()
  readonly #claimed = new Set<QueueRow>()
  #lastWork: QueueRow | undefined
  #lastClaimed: QueueRow | undefined

  constructor(now: Time, recording: boolean, undoLog: UndoLog) {
    this.now = now
    this.recording = recording
    this.#undoLog = undoLog
  }

  /** A job is new or has changed: announces the state that it entered, its due time, and that it can be claimed. */
  jobChanged(row: Row, from: JobState | undefined, due: Time | undefined): void {
    const { job } = row
    const entersState = from !== job.state
    const { name } = row.lane
    if (job.dueAt !== undefined && job.state !== 'active' && (entersState || due !== job.dueAt)) {
      this.#dueAt(name.queue, job.dueAt)
    }
    if (!entersState) return
    if (job.state === 'waiting' && job.kind === 'job' && !isPaused(name)) this.addWork(name.queue)
    if (from === 'active') this.leaseEnded(name.queue)
    if (this.recording) this.events.push(entered(job, this.now))
  }

  /** A job was claimed from a queue. */
  addClaimed(queue: QueueRow): void {
    if (queue === this.#lastClaimed) return
    this.#lastClaimed = queue
    this.#claimed.add(queue)
  }

  /** A lease has ended, which may make room under a limit. */
  leaseEnded(queue: QueueRow): void {
    if (queue.bounds.limited && queue.ready.size > 0) this.addWork(queue)
  }

  /** There may be work to claim in a queue. */
  addWork(queue: QueueRow): void {
    if (queue === this.#lastWork) return
    this.#lastWork = queue
    if (this.#work.has(queue)) return
    this.#work.add(queue)
    if (this.#undoLog.open) {
      this.#undoLog.add(() => {
        this.#lastWork = undefined
        this.#work.delete(queue)
      })
    }
  }

  /** Adds an event other than a state that a job entered. */
  addEvent(type: StoreEventType, job: JobRecord, more?: Partial<EventDraft>): void {
    if (this.recording) this.events.push({ ...draft(type, job, this.now), ...more })
  }

  /** Adds the reason why a job was moved; `worker` held its lease before. */
  addReason(why: NonNullable<Move['why']>, worker: string | undefined, after: JobRecord): void {
    if (this.recording) this.events.push(reason(why, worker, after, this.now))
  }

  /** Adds the event that a cell announces. */
  addCellEvent(event: CellEvent): void {
    if (this.recording) this.events.push(cellEvent(event, this.now))
  }

  /** A lease was revoked. */
  addRevoked(revoked: Revoked): void {
    this.revoked.push(revoked)
  }

  /** Announces the queues from which a claim took the last waiting job. */
  addDrained(): void {
    if (!this.recording) return
    for (const queue of this.#claimed) {
      if (listed(queue, 'waiting').size === 0) this.events.push(drained(queue.name, this.now))
    }
  }

  /** Drops the events and revoked leases after the first so many. */
  truncate(events: number, revoked: number): void {
    this.events.length = events
    this.revoked.length = revoked
  }

  /** Queues that have new work. */
  workHints(): readonly string[] {
    const names: string[] = []
    for (const queue of this.#work) if (queue.ready.size > 0) names.push(queue.name)
    return names
  }

  /** The earliest new due time of each queue. */
  dueHints(): readonly { readonly queue: string; readonly at: Time }[] {
    return Array.from(this.#due, ([queue, at]) => ({ queue: queue.name, at }))
  }

  #dueAt(queue: QueueRow, at: Time): void {
    const known = this.#due.get(queue)
    if (known !== undefined && known <= at) return
    this.#due.set(queue, at)
    if (this.#undoLog.open) {
      this.#undoLog.add(() => {
        if (known === undefined) this.#due.delete(queue)
        else this.#due.set(queue, known)
      })
    }
  }
}
