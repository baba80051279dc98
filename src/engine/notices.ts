// engine/notices.ts: collects the notices of one commit: events, and hints about work, due times and revoked leases.
import type { CellEvent, Move } from '../job/change.js'
import { cellEvent, draft, drained, entered, reason } from '../job/events.js'
import type { EventDraft, StoreEventType } from '../job/events.js'
import type { HoldEnd } from '../job/holds.js'
import type { JobRecord, JobState, Time } from '../job/job.js'
import type { Bounds } from '../job/limits.js'
import type { Revoked } from '../store/store.js'

/** What notices depend on: the bounds of queues, and whether jobs wait in them. */
export interface Waiting {
  bounds(queue: string): Bounds
  hasWaiting(queue: string): boolean
}

/** The notices of a commit in progress. */
export class Notices {
  readonly now: Time
  /** Whether events are recorded; if not, none is created. */
  readonly recording: boolean
  readonly events: EventDraft[] = []
  readonly revoked: Revoked[] = []
  /** Holds that were added or extended. */
  readonly held: HoldEnd[] = []
  /** Queues that may have new work. */
  readonly work = new Set<string>()
  /** The earliest new due time of each queue. */
  readonly due = new Map<string, Time>()
  readonly #workspace: Waiting
  /** Limited queues in which leases have ended, which may make room for waiting jobs. */
  readonly #leasesEnded = new Set<string>()
  readonly #claimed = new Set<string>()
  /** Undoes each hint that was added since the last mark. Hints are not copied: a batch may have many groups and queues. */
  #undo: (() => void)[] | undefined

  constructor(workspace: Waiting, now: Time, recording: boolean) {
    this.#workspace = workspace
    this.now = now
    this.recording = recording
  }

  /** Whether there is anything to publish. */
  get any(): boolean {
    return this.events.length > 0 || this.hints
  }

  /** Whether there are any hints. */
  get hints(): boolean {
    return this.work.size > 0 || this.due.size > 0 || this.revoked.length > 0 || this.held.length > 0
  }

  /** A job is new or has changed: announces the state that it entered, its due time, and that it can be claimed. */
  jobChanged(job: JobRecord, from: JobState | undefined, due: Time | undefined): void {
    const entersState = from !== job.state
    if (job.dueAt !== undefined && job.state !== 'active' && (entersState || due !== job.dueAt)) {
      this.#addDue(job.queue, job.dueAt)
    }
    if (!entersState) return
    if (job.state === 'waiting' && job.kind === 'job') this.jobWaits(job.queue, job.name)
    if (from === 'active') this.leaseEnded(job.queue)
    if (this.recording) this.events.push(entered(job, this.now))
  }

  /** A job of this queue and name can be claimed, unless it is paused. */
  jobWaits(queue: string, name: string): void {
    if (this.work.has(queue)) return
    const { paused, pausedNames } = this.#workspace.bounds(queue)
    if (!paused && !pausedNames.has(name)) this.addWork(queue)
  }

  /** A queue may have new work. */
  addWork(queue: string): void {
    if (this.work.has(queue)) return
    this.work.add(queue)
    this.#undo?.push(() => this.work.delete(queue))
  }

  /** Some jobs of a queue are held. */
  addHeld(hold: HoldEnd): void {
    this.held.push(hold)
  }

  /** A job was claimed from a queue. */
  addClaimed(queue: string): void {
    this.#claimed.add(queue)
  }

  /** A lease has ended, which may make room under a limit. */
  leaseEnded(queue: string): void {
    if (!this.#workspace.bounds(queue).limited || this.#leasesEnded.has(queue)) return
    this.#leasesEnded.add(queue)
    this.#undo?.push(() => this.#leasesEnded.delete(queue))
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

  /** Returns a function that restores the current notices. Only the last mark can be restored. */
  mark(): () => void {
    const [events, revoked, held] = [this.events.length, this.revoked.length, this.held.length]
    const undo: (() => void)[] = (this.#undo = [])
    return () => {
      this.events.length = events
      this.revoked.length = revoked
      this.held.length = held
      for (let step = undo.pop(); step !== undefined; step = undo.pop()) step()
    }
  }

  /** Adds the notices that depend on what waits at the end of the commit. */
  finish(): void {
    for (const queue of this.#leasesEnded) {
      if (!this.work.has(queue) && this.#workspace.hasWaiting(queue)) this.work.add(queue)
    }
    for (const queue of this.#claimed) {
      if (this.#workspace.hasWaiting(queue)) continue
      this.work.delete(queue)
      if (this.recording) this.events.push(drained(queue, this.now))
    }
  }

  #addDue(queue: string, at: Time): void {
    const known = this.due.get(queue)
    if (known !== undefined && known <= at) return
    this.due.set(queue, at)
    this.#undo?.push(() => void (known === undefined ? this.due.delete(queue) : this.due.set(queue, known)))
  }
}
