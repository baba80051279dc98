// stores/sqlite/notices.ts: what one commit has to tell: events, and hints about work, times and leases taken away.
import type { CellEvent, Move } from '../../job/change.js'
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Revoked, StoreEventType } from '../../store/store.js'
import { cellEvent, draft, drained, entered, reason } from '../event-drafts.js'
import type { EventDraft } from '../event-drafts.js'

/** What has happened so far in the commit being made. */
export class Notices {
  readonly now: Time
  /** Whether events are wanted; if not, none is made. */
  readonly recording: boolean
  readonly events: EventDraft[] = []
  readonly revoked: Revoked[] = []
  work = new Set<string>()
  due = new Map<string, Time>()

  constructor(now: Time, recording: boolean) {
    this.now = now
    this.recording = recording
  }

  /** Whether there is anything to tell. */
  get any(): boolean {
    return this.events.length > 0 || this.hints
  }

  /** Whether there is anything to tell besides events. */
  get hints(): boolean {
    return this.work.size > 0 || this.due.size > 0 || this.revoked.length > 0
  }

  /** A job is new, or has another record: announces the state entered, and when it wants attention. */
  placed(job: JobRecord, from: JobState | undefined, due: Time | undefined): void {
    const moved = from !== job.state
    if (job.dueAt !== undefined && job.state !== 'active' && (moved || due !== job.dueAt)) {
      const known = this.due.get(job.queue)
      if (known === undefined || known > job.dueAt) this.due.set(job.queue, job.dueAt)
    }
    if (moved && this.recording) this.events.push(entered(job, this.now))
  }

  /** A job is completed, without a result. */
  tellCompleted(job: JobRecord): void {
    if (!this.recording) return
    const event = draft('completed', job, this.now)
    event.attempt = job.attempt
    this.events.push(event)
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

  /** A claim took the last waiting job of a queue. */
  tellDrained(queue: string): void {
    if (this.recording) this.events.push(drained(queue, this.now))
  }

  /** How to come back to what there is to tell now. */
  mark(): () => void {
    const [events, revoked] = [this.events.length, this.revoked.length]
    const [work, due] = [new Set(this.work), new Map(this.due)]
    return () => {
      this.events.length = events
      this.revoked.length = revoked
      this.work = work
      this.due = due
    }
  }
}
