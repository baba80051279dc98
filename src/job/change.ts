// job/change.ts: the five kinds of change that a commit is made of. Lifecycle rules make them; stores apply them.
import type { Backoff } from './retry.js'
import type { JsonText } from './json.js'
import type {
  Dedup,
  EdgePolicy,
  ErrorInfo,
  Extras,
  FinishedState,
  JobKind,
  JobState,
  KeepByState,
  Millis,
  StepResult,
  Time,
} from './job.js'

/** A moment: relative to the store's clock when the change lands, or the date that a user gave. */
export type When = { readonly in: Millis } | { readonly at: Time }

/** A job before the store has given it a place, a fence and its times. */
export interface NewJob {
  readonly id: string
  readonly kind: JobKind
  readonly queue: string
  readonly name: string
  readonly version: number
  readonly data: JsonText | undefined
  /**
   * The state it enters; one with dependencies enters `waiting-children`, and leaves it at once if all have ended or there are
   * none: into `delayed` where its time is still ahead by the store's clock, else into `waiting`.
   */
  readonly state: 'waiting' | 'delayed' | 'waiting-children'
  readonly priority: number
  readonly lifo: boolean
  readonly attempts: number
  readonly backoff: Backoff | undefined
  readonly timeout: Millis | undefined
  readonly run: When | undefined
  readonly chainId: string
  readonly chainIndex: number
  readonly parentId: string | undefined
  /** Never with `lifo`. */
  readonly group: string | undefined
  readonly dedup: Dedup | undefined
  readonly keep: KeepByState | undefined
  readonly extras: Extras | undefined
}

/** A dependency of a new job, or one that a running job takes on: on the chain of the job named. */
export interface NewEdge {
  /** Any job of the chain; one that is neither stored nor inserted earlier in the group is refused as `missing`. */
  readonly on: string
  readonly policy: EdgePolicy
}

/** Adds a job with its edges. Refused as `duplicate` if its id or its dedup key is taken. */
export interface Insert {
  readonly kind: 'insert'
  readonly job: NewJob
  readonly edges: readonly NewEdge[]
}

/** What a move writes besides the state. `undefined` leaves a field alone, `null` empties it. */
export interface MoveFields {
  readonly attempt?: number
  readonly stalls?: number
  readonly run?: When | null
  readonly data?: JsonText | null
  readonly priority?: number
  readonly result?: JsonText
  readonly error?: ErrorInfo | null
  readonly memo?: JsonText
  readonly staleIn?: Millis
  readonly deleteIn?: Millis
  /** `staleAt` has passed. */
  readonly stale?: true
}

/**
 * Takes a job to another state (or to the same one with other fields), fenced; the fence goes up by one. One that enters
 * `waiting-children` with nothing pending goes straight on, as if its last dependency had just ended.
 */
export interface Move {
  readonly kind: 'move'
  readonly id: string
  /** Must be the job's fence, or the group is refused. */
  readonly fence: number
  readonly to: JobState | 'removed'
  /**
   * Sent by the worker that holds the lease: refused as well once the lease has run out. A move that is not, of a job
   * whose lease still runs, leaves a handler behind: it is told (`revoked`), and it counts against limits until its
   * lease is given up or over. One that completes a job leaves it without a worker.
   */
  readonly held: boolean
  /** Takes a job from a lease that has run out: refused if the lease was renewed meanwhile. */
  readonly reaps?: true | undefined
  /** Entering `waiting`: behind all others of its priority (`new`), or where it stood before (`old`). */
  readonly place: 'old' | 'new'
  /** Why, announced just before the event of the state entered. */
  readonly why: 'retrying' | 'stalled' | 'stale' | undefined
  /** Decides all broken edges of the job: they close, and `pending` drops by their number. */
  readonly closesBroken: boolean
  /**
   * With `waiting-children`: further chains to wait for, after those that the job has waited for already. As with a new job,
   * edges to chains that have ended are born so; a chain that it has an edge to gets no other.
   */
  readonly waitsFor?: readonly NewEdge[]
  /**
   * With `waiting-children`, starting a finished job over: its edges that are broken or closed are opened again. Each takes the
   * state that its chain has in this commit: `open` while a job of it is unfinished, `ended` if it ended well. An edge to a
   * chain that still stands ended badly, or is gone, stays as it is if its policy is to ignore that; any other refuses the
   * group as `broken`, before anything else of the move does but the fence.
   */
  readonly reopens?: true
  readonly set: MoveFields
}

/** What a note announces once it is durable: a type, and what goes with it. */
export interface NoteEvent {
  /** What happened. */
  readonly type: 'phase' | 'webhook-delivered' | 'webhook-failed'
  /** What the event says beside the job: an object as JSON. */
  readonly about: JsonText
}

/** Writes beside the state, fenced; the fence stays. */
export interface Note {
  readonly kind: 'note'
  readonly id: string
  readonly fence: number
  /** As in `Move`. */
  readonly held: boolean
  readonly progress?: JsonText
  /** `null` empties it. */
  readonly data?: JsonText | null
  readonly logs?: readonly string[]
  readonly memo?: JsonText
  /** Steps that have ended; one of the same name takes the place of the one before. */
  readonly steps?: readonly StepResult[]
  /** Announced after the progress, in order. */
  readonly tells?: readonly NoteEvent[]
  /** What goes with the event of its progress. */
  readonly about?: JsonText
}

/**
 * This chain has ended. Its open edges close; each dependent is counted down and, at zero, moves on in this very
 * commit; or, if the chain ended badly, is marked broken and due now, its fence going up (a dependent that has finished
 * is only marked, so that a retry finds it broken). Says nothing while a job of the chain is unfinished.
 *
 * Edges take along what the last job of the chain returned or failed with. If the chain ended well after it had ended badly
 * once, and was started over by hand, the edges that this left behind end well, too: a broken one counts down now, a
 * closed one has been counted.
 */
export interface Release {
  readonly kind: 'release'
  readonly chain: string
  readonly outcome: FinishedState
}

/** What a `Put` announces once it is durable. */
export interface CellEvent {
  readonly type: 'paused' | 'resumed' | 'worker-started' | 'worker-stopping' | 'worker-stopped'
  readonly queue: string
  readonly name?: string
  readonly worker?: string
}

/** Writes a versioned cell; refused as `version` unless `version` is the one that stands (0: there is none). */
export interface Put {
  readonly kind: 'put'
  readonly key: string
  /** `undefined` removes the cell. */
  readonly value: JsonText | undefined
  readonly version: number
  readonly events: readonly CellEvent[]
}

/** One step of a group. */
export type Change = Insert | Move | Note | Release | Put
