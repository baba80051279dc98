// stores/sqlite/notices.ts: collects the notices of one commit: events, and hints about work, due times and revoked leases.
import type { CellEvent, Move } from '../../job/change.js'
import type { JobRecord, JobState, Time } from '../../job/job.js'
import type { Revoked } from '../../store/store.js'
import type { StoreEventType } from '../../job/events.js'
import { cellEvent, draft, drained, entered, reason } from '../../job/events.js'
import type { EventDraft } from '../../job/events.js'

/** The notices of a commit in progress. */
export class Notices {
  readonly now: Time
  /** Whether events are recorded; if not, none is created. */
  readonly recording: boolean
  readonly events: EventDraft[] = []
  readonly revoked: Revoked[] = []
  work = new Set<string>()
  due = new Map<string, Time>()

  constructor(now: Time, recording: boolean) {
    this.now = now
    this.recording = recording
  }

  /** Whether there is anything to publish. */
  get any(): boolean {
    return this.events.length > 0 || this.hints
  }

  /** Whether there are any hints. */
  get hints(): boolean {
    return this.work.size > 0 || this.due.size > 0 || this.revoked.length > 0
  }

  /** A job is new or has changed: announces the state that it entered, and its due time. */
  jobChanged(job: JobRecord, from: JobState | undefined, due: Time | undefined): void {
    const entersState = from !== job.state
    if (job.dueAt !== undefined && job.state !== 'active' && (entersState || due !== job.dueAt)) {
      const known = this.due.get(job.queue)
      if (known === undefined || known > job.dueAt) this.due.set(job.queue, job.dueAt)
    }
    if (entersState && this.recording) this.events.push(entered(job, this.now))
  }

  /** Announces a completion without a result. */
  addCompleted(job: JobRecord): void {
    if (!this.recording) return
    const event = draft('completed', job, this.now)
    event.attempt = job.attempt
    this.events.push(event)
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

  /** Announces that a claim took the last waiting job of a queue. */
  addDrained(queue: string): void {
    if (this.recording) this.events.push(drained(queue, this.now))
  }

  /** Returns a function that restores the current notices. */
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
