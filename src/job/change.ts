// job/change.ts: the five kinds of change that a commit is made of, and how an insert and a move are written. Lifecycle
// rules make them; stores apply them.
import type { NewHold } from './holds.js'
import type { Backoff } from './retry.js'
import type { JsonText } from './values/json.js'
import type {
  Dedup,
  EdgePolicy,
  ErrorInfo,
  Extras,
  FinishedState,
  JobHeader,
  JobKind,
  JobState,
  KeepByState,
  Millis,
  StepResult,
  Time,
} from './job.js'

/** A moment: relative to the store's clock when the change is applied, or the date that a user gave. */
export type When = { readonly in: Millis } | { readonly at: Time }

/** A job before the store has assigned its order, its fence and its times. */
export interface NewJob {
  /** Its id, unique in the store. */
  readonly id: string
  /** What the row is. */
  readonly kind: JobKind
  /** The queue it is added to. */
  readonly queue: string
  /** The name that selects its handler. */
  readonly name: string
  /** The version of its declaration. */
  readonly version: number
  /** Its data, as JSON. */
  readonly data: JsonText | undefined
  /**
   * The state it enters. A job with dependencies enters `waiting-children`, and leaves it at once if all have ended or
   * there are none: into `delayed` where its time is still ahead by the store's clock, else into `waiting`.
   */
  readonly state: 'waiting' | 'delayed' | 'waiting-children'
  /** Lower goes first. */
  readonly priority: number
  /** It goes before all others of its priority that wait. */
  readonly lifo: boolean
  /** Attempts allowed, the first included; may be Infinity. */
  readonly attempts: number
  /** How long to wait between attempts; undefined: as its handler declares. */
  readonly backoff: Backoff | undefined
  /** How long one attempt may run; undefined: as its handler declares. */
  readonly timeout: Millis | undefined
  /** When it may start; undefined: at once. */
  readonly run: When | undefined
  /** When it is cancelled unless it was started before. Default: never. */
  readonly expires?: When | undefined
  /** The id of the first job of its chain: its own, unless it continues one. */
  readonly chainId: string
  /** Its position in the chain, from 0. */
  readonly chainIndex: number
  /** The job that added it as a child, the schedule whose run it is, or the job that a signal is for. */
  readonly parentId: string | undefined
  /** Never with `lifo`. */
  readonly group: string | undefined
  /** Its dedup key. */
  readonly dedup: Dedup | undefined
  /** How long it is kept when it has finished. */
  readonly keep: KeepByState | undefined
  /** Data for the code that runs it. */
  readonly extras: Extras | undefined
}

/** A dependency of a new job, or one that a running job adds: on the chain of the job named. */
export interface NewEdge {
  /** Any job of the chain. A job that is neither stored nor inserted earlier in the group refuses it as `missing`. */
  readonly on: string
  /** What happens to the job if the chain fails or is cancelled. */
  readonly policy: EdgePolicy
}

/** Adds a job with its edges. Refused as `duplicate` if its id or its dedup key is taken. */
export interface Insert {
  readonly kind: 'insert'
  /** The job. */
  readonly job: NewJob
  /** What it waits for. */
  readonly edges: readonly NewEdge[]
}

/** What a move writes besides the state. `undefined` leaves a field unchanged, `null` empties it. */
export interface MoveFields {
  /** Attempts started and not given back. */
  readonly attempt?: number
  /** How often its lease expired. */
  readonly stalls?: number
  /** When it may start. */
  readonly run?: When | null
  /** When it is cancelled unless it was started before; `null`: never. */
  readonly expires?: When | null
  /** Its data, as JSON. */
  readonly data?: JsonText | null
  /** Its priority. */
  readonly priority?: number
  /** What its handler returned, as JSON. */
  readonly result?: JsonText
  /** Its last error; of a cancelled job the reason. */
  readonly error?: ErrorInfo | null
  /** State of its phases and deliveries, as JSON. */
  readonly memo?: JsonText
  /** Marked stale this long after this commit. */
  readonly staleIn?: Millis
  /** Removed this long after this commit. */
  readonly deleteIn?: Millis
  /** `staleAt` has passed. */
  readonly stale?: true
}

/**
 * Takes a job to another state (or to the same one with other fields), fenced; the fence goes up by one. A job that
 * enters `waiting-children` with nothing pending leaves it at once, as if its last dependency had just ended.
 */
export interface Move {
  readonly kind: 'move'
  /** The job. */
  readonly id: string
  /** Must be the job's fence, or the group is refused. */
  readonly fence: number
  /** The state it enters; `removed` deletes it. */
  readonly to: JobState | 'removed'
  /**
   * Sent by the lease holder: also refused once the lease has expired. Any other move of a job whose lease still runs
   * leaves a handler running: its worker gets a notice (`revoked`), and the lease counts against limits until it is
   * given up or expires. Such a move that completes a job leaves it without a worker.
   */
  readonly held: boolean
  /** Takes a job whose lease has expired: refused if the lease was renewed meanwhile. */
  readonly reaps?: true | undefined
  /** Entering `waiting`: behind all others of its priority (`new`), or with its former order (`old`). */
  readonly place: 'old' | 'new'
  /** The reason, announced just before the event of the state entered. */
  readonly why: 'retrying' | 'stalled' | 'stale' | undefined
  /** Decides all broken edges of the job: they become closed, and `pending` drops by their number. */
  readonly closesBroken: boolean
  /**
   * With `waiting-children`: further chains to wait for, after those that the job has already waited for. As with a new
   * job, edges to chains that have ended are created as ended; a chain that the job already has an edge to gets no
   * other.
   */
  readonly waitsFor?: readonly NewEdge[]
  /**
   * With `waiting-children`, when a finished job starts over: reopens its edges that are broken or closed. Each takes
   * the state that its chain has in this commit: `open` while a job of it is unfinished, `ended` if it ended well. An
   * edge to a chain that still counts as failed or cancelled, or is gone, stays as it is if its policy is to ignore
   * that; any other refuses the group as `broken`. Of all checks of the move only the fence comes before this one.
   */
  readonly reopens?: true
  /** The other fields to write. */
  readonly set: MoveFields
  /** Cancels a job to make room for others: what to count it under, since its record is not at hand where that is done. */
  readonly dropped?: { readonly queue: string; readonly name: string }
}

/** An event that a note announces once it is durable. */
export interface NoteEvent {
  /** What happened. */
  readonly type: 'phase' | 'webhook-delivered' | 'webhook-failed' | 'schedule-missed' | 'operation-ended'
  /** The event's data besides the job: an object as JSON. */
  readonly about: JsonText
}

/** Writes beside the state, fenced; the fence stays. */
export interface Note {
  readonly kind: 'note'
  /** The job. */
  readonly id: string
  /** Must be the job's fence, or the group is refused. */
  readonly fence: number
  /** As in `Move`. */
  readonly held: boolean
  /** Its progress, as JSON. */
  readonly progress?: JsonText
  /** `null` empties it. */
  readonly data?: JsonText | null
  /** Lines to append to its log. */
  readonly logs?: readonly string[]
  /** State of its phases and deliveries, as JSON. */
  readonly memo?: JsonText
  /** Steps that have ended; a step replaces an earlier one of the same name. */
  readonly steps?: readonly StepResult[]
  /** Announced after the progress, in order. */
  readonly events?: readonly NoteEvent[]
  /** Data for the event of its progress. */
  readonly about?: JsonText
}

/**
 * Ends a chain. Its open edges end; each dependent is counted down and, at zero, leaves `waiting-children` in the same
 * commit. If the chain failed or was cancelled, each dependent is instead marked broken and due now, and its fence goes
 * up (a dependent that has finished is only marked, so that a retry finds it broken). Does nothing while a job of the
 * chain is unfinished.
 *
 * Edges take the result or the error of the chain's last job. A chain may end well after it had failed or was cancelled
 * once, and was started over by hand. Then the edges that the first end left behind end well, too: a broken one counts
 * down now, a closed one has been counted.
 */
export interface Release {
  readonly kind: 'release'
  /** The chain: the id of its first job. */
  readonly chain: string
  /** How its last job ended. */
  readonly outcome: FinishedState
}

/** An event that a `Put` announces once it is durable. */
export interface CellEvent {
  /** What happened. */
  readonly type: 'paused' | 'resumed' | 'worker-started' | 'worker-stopping' | 'worker-stopped'
  /** The queue. */
  readonly queue: string
  /** The job name that was paused or resumed; absent: the whole queue. */
  readonly name?: string
  /** The worker, in events of workers. */
  readonly worker?: string
}

/** Writes a versioned cell; refused as `version` unless `version` is the current one (0: there is none). */
export interface Put {
  readonly kind: 'put'
  /** The key of the cell. */
  readonly key: string
  /** `undefined` removes the cell. */
  readonly value: JsonText | undefined
  /** The version that the cell must have; 0: it must not exist. */
  readonly version: number
  /** Published with the write. */
  readonly events: readonly CellEvent[]
  /**
   * In place of `value` and `version`, for a cell of pauses: adds this hold to what the cell holds, whatever its version,
   * by the store's clock. Refused as `full` if there are too many.
   */
  readonly hold?: NewHold
}

/** One step of a group. */
export type Change = Insert | Move | Note | Release | Put

/** The input of a new job, without what follows from the rules. */
export type JobSpec = Omit<NewJob, 'state' | 'chainId' | 'chainIndex'> & { readonly edges: readonly NewEdge[] }

/** A job enters `waiting-children` with dependencies, `delayed` with a time to run at, and `waiting` otherwise. */
export function create(spec: JobSpec, chain?: { readonly id: string; readonly index: number }): Insert {
  const { edges } = spec
  return {
    kind: 'insert',
    // Spelled out: this runs for every job added, and a spread would cost more than everything else here.
    job: {
      id: spec.id,
      kind: spec.kind,
      queue: spec.queue,
      name: spec.name,
      version: spec.version,
      data: spec.data,
      state: edges.length > 0 ? 'waiting-children' : spec.run === undefined ? 'waiting' : 'delayed',
      priority: spec.priority,
      lifo: spec.lifo,
      attempts: spec.attempts,
      backoff: spec.backoff,
      timeout: spec.timeout,
      run: spec.run,
      expires: spec.expires,
      chainId: chain?.id ?? spec.id,
      chainIndex: chain?.index ?? 0,
      parentId: spec.parentId,
      group: spec.group,
      dedup: spec.dedup,
      keep: spec.keep,
      extras: spec.extras,
    },
    edges,
  }
}

/** The fields of a row of Millrace's own that is no user's job: a schedule, a signal, a delivery. */
export const OWN_ROW = {
  version: 1,
  priority: 0,
  lifo: false,
  attempts: 1,
  backoff: undefined,
  timeout: undefined,
  run: undefined,
  parentId: undefined,
  group: undefined,
  dedup: undefined,
  keep: undefined,
  extras: undefined,
  edges: [],
} as const satisfies Partial<JobSpec>

/** Writes nothing but the state. */
export const NOTHING: MoveFields = {}

/** Moves a job to a state. */
export function move(
  job: Pick<JobHeader, 'id' | 'fence'>,
  to: JobState | 'removed',
  options: Partial<Pick<Move, 'held' | 'reaps' | 'place' | 'why' | 'closesBroken' | 'set'>> = {},
): Move {
  return {
    kind: 'move',
    id: job.id,
    fence: job.fence,
    to,
    held: options.held ?? false,
    reaps: options.reaps,
    place: options.place ?? 'old',
    why: options.why,
    closesBroken: options.closesBroken ?? false,
    set: options.set ?? NOTHING,
  }
}
