// What every contender can do; each does it in its own way on a file or a database of its own.
//
// A path is that of a file, or the URL of a database. On a server the mode is always `full`.
import type { Sample } from '../measure/measure.js'
import type { Mode, Way, Weight } from '../measure/load.js'

/** Jobs to add or to work off. */
export interface Load {
  readonly mode: Mode
  readonly weight: Weight
  readonly count: number
}

/** What is there before it is drained. */
export interface Backlog {
  readonly weight: Weight
  /** Numbered from 0 up. */
  readonly waiting: number
  /** Completed, and kept. */
  readonly finished?: number
  /** Due tomorrow. */
  readonly delayed?: number
  /** In front of those waiting, under a name that is paused. */
  readonly paused?: number
}

/** An open program, for measuring how soon a job starts. */
export interface Session {
  /** Adds the job numbered `n`; it is durable when this is over. */
  add(n: number): Promise<void>
  /** Begins to work: `started` is called where a handler would be. */
  work(started: (n: number) => void): Promise<void>
  close(): Promise<void>
}

/** A contender. */
export interface Subject {
  readonly name: string
  /** What it really runs with when asked for a mode: SQLite's `synchronous`, `fsync` or `memory`. */
  durability(mode: Mode): string
  /** Adds jobs to an empty one; the figure is `rate`. */
  add(path: string, way: Way, load: Load): Promise<Sample>
  /** Makes it, with all that is to be there. */
  fill(path: string, backlog: Backlog): Promise<void>
  /**
   * Works until `load.count` of the waiting jobs have ended, which may be all of them; the figure is `rate`, and for
   * those who can tell when each job ended `tail`: the speed near the end, to that near the start.
   */
  drain(path: string, load: Load, backlog: Backlog): Promise<Sample>
  /** Opens one for single jobs. */
  open(path: string, mode: Mode): Promise<Session>
}
