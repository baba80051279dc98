// What every contender of the SQLite rows can do; each does it in its own way on a file of its own.
import type { Sample } from './measure.js'
import type { Mode, Way, Weight } from './load.js'

/** Jobs to add or to fill a file with. */
export interface Load {
  readonly mode: Mode
  readonly weight: Weight
  readonly count: number
}

/** What a file holds before it is drained. */
export interface Backlog {
  readonly weight: Weight
  /** Numbered from 0 up. */
  readonly waiting: number
  /** Completed, and kept. */
  readonly finished?: number
  /** Due tomorrow. */
  readonly delayed?: number
}

/** A program on an open file, for measuring how soon a job starts. */
export interface Session {
  /** Adds the job numbered `n`; it is durable when this is over. */
  add(n: number): Promise<void>
  /** Begins to work: `started` is called where a handler would be. */
  work(started: (n: number) => void): Promise<void>
  close(): Promise<void>
}

/** A contender of the SQLite rows. */
export interface Subject {
  readonly name: string
  /** The `synchronous` it really runs with when asked for a mode. */
  durability(mode: Mode): string
  /** Adds jobs to a new file; the figure is `rate`. */
  add(path: string, way: Way, load: Load): Promise<Sample>
  /** Makes a file. */
  fill(path: string, backlog: Backlog): Promise<void>
  /** Works until `load.count` of the waiting jobs have ended, which may be all of them; the figure is `rate`. */
  drain(path: string, load: Load, backlog: Backlog): Promise<Sample>
  /** Opens a file for single jobs. */
  open(path: string, mode: Mode): Promise<Session>
}
