// testing/check/simulated-history.ts: the history of a simulation: what the store applied and what handlers and callers saw, in order.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { Ended } from '../../queue/flows/chain-types.js'
import type { Batch, Receipt } from '../../store/store.js'

/** A batch that the store applied, and the jobs that it touched, as read directly after it. */
export interface Landing {
  readonly kind: 'landing'
  readonly time: Millis
  /** The process that sent it. */
  readonly process: string
  readonly batch: Batch
  readonly receipt: Receipt
  /** It was applied before, and the receipt is the same: nothing was applied again. */
  readonly replay: boolean
  readonly after: ReadonlyMap<string, JobRecord | undefined>
}

/** The receipt of a batch reached the process that sent it. */
export interface Received {
  readonly kind: 'received'
  readonly time: Millis
  readonly writer: string
  readonly seq: number
  /** The jobs that it claimed. */
  readonly jobs: readonly { readonly id: string; readonly fence: number }[]
}

/** What identifies one run of a handler. */
export interface Run {
  readonly process: string
  readonly worker: string
  readonly id: string
  readonly fence: number
  /** How long it may run; a handler that ignores its timeout is abandoned some time after that. */
  readonly timeout: Millis | undefined
  /** The number of the call that runs it in a batch; undefined: it runs alone. */
  readonly call?: number
}

/** What happened to a run. */
export type RunEntry =
  | { readonly kind: 'started'; readonly time: Millis; readonly run: Run }
  | { readonly kind: 'aborted'; readonly time: Millis; readonly run: Run; readonly reason: string }
  | { readonly kind: 'ended'; readonly time: Millis; readonly run: Run; readonly how: 'returned' | 'threw' }

/** A caller started a call. */
export interface Called {
  readonly kind: 'called'
  readonly time: Millis
  readonly process: string
  readonly call: string
  /** Links the call to its result. */
  readonly number: number
}

/** The result of a call, or the code of its error. */
export type CallResult = { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly code: string }

/** A call returned or threw. */
export interface Returned {
  readonly kind: 'returned'
  readonly time: Millis
  readonly process: string
  readonly call: string
  readonly number: number
  /** The job it was about, if that is known. */
  readonly id: string | undefined
  /** The number of that job in the script. */
  readonly n: number | undefined
  readonly result: CallResult
}

/** An event, as the store published it or as a listener in a process received it. */
export interface EventReceived {
  readonly kind: 'event'
  readonly time: Millis
  /** Undefined: a watcher of the store itself received it. */
  readonly process: string | undefined
  readonly event: { readonly type: string; readonly id: string }
}

/** A handler's call to log a line returned. */
interface Logged {
  readonly kind: 'logged'
  readonly time: Millis
  readonly id: string
}

/** A handler read how its job's dependencies ended. */
export interface DependenciesRead {
  readonly kind: 'dependencies'
  readonly time: Millis
  readonly id: string
  /** The fence of the run that read them. */
  readonly fence: number
  readonly ended: readonly Ended[]
}

/** A handler runs a durable step, or (with a result) the call of the step returned. */
export interface Stepped {
  readonly kind: 'stepped'
  readonly time: Millis
  readonly id: string
  readonly fence: number
  readonly name: string
  readonly result?: string
}

/** A handler received the signal that it waited for. */
export interface Signalled {
  readonly kind: 'signalled'
  readonly time: Millis
  readonly id: string
  readonly data: string
}

/** A process ended, by itself or not: nothing runs in it any more. */
interface Gone {
  readonly kind: 'gone'
  readonly time: Millis
  readonly process: string
}

/** A fault of a process or of one of its calls, which may keep its worker from starting jobs until then. */
interface Disturbed {
  readonly kind: 'disturbed'
  readonly time: Millis
  readonly process: string
  readonly until: Millis
}

/** One entry of a history. */
export type Entry =
  | Landing
  | Received
  | RunEntry
  | Called
  | Returned
  | Logged
  | DependenciesRead
  | Stepped
  | Signalled
  | EventReceived
  | Gone
  | Disturbed

/** The entries of a history, with a readable trace and counts of what was covered. */
export class History {
  readonly entries: Entry[] = []
  readonly trace: string[] = []
  readonly #counts = new Map<string, number>()
  readonly #time: () => Millis
  #calls = 0

  constructor(time: () => Millis) {
    this.#time = time
  }

  /** Milliseconds since the simulation started. */
  get time(): Millis {
    return this.#time()
  }

  /** A number for the next call of a batch handler. */
  nextCall(): number {
    return ++this.#calls
  }

  add(entry: Entry): void {
    this.entries.push(entry)
  }

  /** Records a fault of a process, and how long it lasts. */
  disturb(process: string, lasts: Millis): void {
    const time = this.#time()
    this.entries.push({ kind: 'disturbed', time, process, until: time + lasts })
  }

  /** Adds a line to the trace. */
  writeTrace(process: string, text: string): void {
    this.trace.push(`${this.#time().toFixed(2).padStart(11)}  ${process.padEnd(6)} ${text}`)
  }

  /** Counts one more occurrence of something that simulations should cover. */
  count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1)
  }

  /** How often each thing occurred, by name. */
  counts(): Readonly<Record<string, number>> {
    return Object.fromEntries([...this.#counts].toSorted(([a], [b]) => (a < b ? -1 : 1)))
  }
}

/** The state of the store at the end, which the checker reads beside the history. */
export interface FinalState {
  readonly now: Time
  readonly jobs: readonly JobRecord[]
}
