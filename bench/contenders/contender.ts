// The interface of a contender. Each implements it in its own way, on a file or a database of its own.
//
// A path is that of a file, or the URL of a database. On a server the mode is always `full`.
import type { Sample } from '../measure/measure.js'
import type { Mode, Way, Weight } from '../measure/load.js'

/** Jobs to add or to process. */
export interface Load {
  readonly mode: Mode
  readonly weight: Weight
  readonly count: number
}

/** What a database contains before it is drained. */
export interface Backlog {
  readonly weight: Weight
  /** Waiting jobs, numbered from 0 up. */
  readonly waiting: number
  /** Completed jobs that are kept. */
  readonly finished?: number
  /** Jobs that are due tomorrow. */
  readonly delayed?: number
  /** Jobs in front of the waiting ones, whose name is paused. */
  readonly paused?: number
}

/** An open program, to measure how soon a job starts. */
export interface Session {
  /** Adds the job numbered `n`; resolves when it is durable. */
  add(n: number): Promise<void>
  /** Starts a worker, which calls `started` in place of a handler. */
  work(started: (n: number) => void): Promise<void>
  close(): Promise<void>
}

/** A contender. */
export interface Subject {
  readonly name: string
  /** The durability that it runs with when asked for a mode: SQLite's `synchronous`, `fsync` or `memory`. */
  durability(mode: Mode): string
  /** Adds jobs to an empty database. The figure is `rate`. */
  add(path: string, way: Way, load: Load): Promise<Sample>
  /** Creates a database with this backlog. */
  fill(path: string, backlog: Backlog): Promise<void>
  /**
   * Works until `load.count` of the waiting jobs have ended, which may be all of them. The figures are `rate` and, for
   * contenders that report when each job ended, `tail`: the speed near the end divided by the speed near the start.
   */
  drain(path: string, load: Load, backlog: Backlog): Promise<Sample>
  /** Opens a program for single jobs. */
  open(path: string, mode: Mode): Promise<Session>
}
