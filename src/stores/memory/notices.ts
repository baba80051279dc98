// stores/memory/notices.ts: what one commit has to tell: events, and hints about work, times and leases taken away.
import type { CellEvent, Move } from '../../job/change.js'
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Revoked, StoreEventType } from '../../store/store.js'
import { cellEvent, draft, drained, entered, reason } from '../event-drafts.js'
import type { EventDraft } from '../event-drafts.js'
import type { UndoLog } from './undo-log.js'
import { isPaused, listed } from './row.js'
import type { Queued, Row } from './row.js'

/** What has happened so far in the commit being made. */
export class Notices {
  readonly now: Time
  /** Whether events are wanted; if not, none is made. */
  readonly recording: boolean
  readonly events: EventDraft[] = []
  readonly revoked: Revoked[] = []
  readonly #journal: UndoLog
  readonly #work = new Set<Queued>()
  readonly #due = new Map<Queued, Time>()
  readonly #claimed = new Set<Queued>()
  #lastWork: Queued | undefined
  #lastClaimed: Queued | undefined

  constructor(now: Time, recording: boolean, journal: UndoLog) {
    this.now = now
    this.recording = recording
    this.#journal = journal
  }

  /** A job is new, or has another record: announces the state entered, when it wants attention, and that it can be claimed. */
  placed(row: Row, from: JobState | undefined, due: Time | undefined): void {
    const { job } = row
    const moved = from !== job.state
    const { name } = row.lane
    if (job.dueAt !== undefined && job.state !== 'active' && (moved || due !== job.dueAt)) {
      this.#dueAt(name.queue, job.dueAt)
    }
    if (!moved) return
    if (job.state === 'waiting' && job.kind === 'job' && !isPaused(name)) this.work(name.queue)
    if (from === 'active') this.credited(name.queue)
    if (this.recording) this.events.push(entered(job, this.now))
  }

  /** A job was claimed from a queue. */
  claimed(queue: Queued): void {
    if (queue === this.#lastClaimed) return
    this.#lastClaimed = queue
    this.#claimed.add(queue)
  }

  /** A lease has ended, which may let others in. */
  credited(queue: Queued): void {
    if (queue.bounds.limited && queue.ready.size > 0) this.work(queue)
  }

  /** There may be work to claim in a queue. */
  work(queue: Queued): void {
    if (queue === this.#lastWork) return
    this.#lastWork = queue
    if (this.#work.has(queue)) return
    this.#work.add(queue)
    if (this.#journal.open) {
      this.#journal.add(() => {
        this.#lastWork = undefined
        this.#work.delete(queue)
      })
    }
  }

  /** Something happened to a job that is not the state it entered. */
  tell(type: StoreEventType, job: JobRecord, more?: Partial<EventDraft>): void {
    if (this.recording) this.events.push({ ...draft(type, job, this.now), ...more })
  }

  /** Why a job was moved; `worker` held it before. */
  tellWhy(why: NonNullable<Move['why']>, worker: string | undefined, after: JobRecord): void {
    if (this.recording) this.events.push(reason(why, worker, after, this.now))
  }

  /** What a cell announces. */
  tellCell(event: CellEvent): void {
    if (this.recording) this.events.push(cellEvent(event, this.now))
  }

  /** A lease was taken away from its holder. */
  revoke(revoked: Revoked): void {
    this.revoked.push(revoked)
  }

  /** Announces the queues from which an ask took the last waiting job. */
  drained(): void {
    if (!this.recording) return
    for (const queue of this.#claimed) {
      if (listed(queue, 'waiting').size === 0) this.events.push(drained(queue.name, this.now))
    }
  }

  /** Forgets what was told since there were this many events and leases taken away. */
  truncate(events: number, revoked: number): void {
    this.events.length = events
    this.revoked.length = revoked
  }

  /** Queues with work in them that was not there before. */
  workHints(): readonly string[] {
    const names: string[] = []
    for (const queue of this.#work) if (queue.ready.size > 0) names.push(queue.name)
    return names
  }

  /** The earliest new time of each queue. */
  dueHints(): readonly { readonly queue: string; readonly at: Time }[] {
    return Array.from(this.#due, ([queue, at]) => ({ queue: queue.name, at }))
  }

  #dueAt(queue: Queued, at: Time): void {
    const known = this.#due.get(queue)
    if (known !== undefined && known <= at) return
    this.#due.set(queue, at)
    if (this.#journal.open) {
      this.#journal.add(() => {
        if (known === undefined) this.#due.delete(queue)
        else this.#due.set(queue, known)
      })
    }
  }
}
