// testing/check/history.ts: what truly happened, in order: what landed in the store, and what handlers and callers saw.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { Ended } from '../../queue/flows/chain-types.js'
import type { Batch, Receipt } from '../../store/store.js'

/** A batch that the store applied, and the jobs that it touched as they stood right after. */
export interface Landing {
  readonly kind: 'landing'
  readonly time: Millis
  /** The process that sent it. */
  readonly process: string
  readonly batch: Batch
  readonly receipt: Receipt
  /** It had landed before, and the answer was the same: nothing was applied. */
  readonly replay: boolean
  readonly after: ReadonlyMap<string, JobRecord | undefined>
}

/** The answer to a batch reached the process that sent it. */
export interface Received {
  readonly kind: 'received'
  readonly time: Millis
  readonly writer: string
  readonly seq: number
  /** The jobs that it claimed. */
  readonly jobs: readonly { readonly id: string; readonly fence: number }[]
}

/** One run of a handler, which it is told by. */
export interface Run {
  readonly process: string
  readonly worker: string
  readonly id: string
  readonly fence: number
  /** How long it may run; one that does not obey is given up some time after that. */
  readonly timeout: Millis | undefined
  /** The call that runs it and others as a batch; undefined: one of its own. */
  readonly call?: number
}

/** What happened to a run. */
export type RunEntry =
  | { readonly kind: 'started'; readonly time: Millis; readonly run: Run }
  | { readonly kind: 'aborted'; readonly time: Millis; readonly run: Run; readonly reason: string }
  | { readonly kind: 'ended'; readonly time: Millis; readonly run: Run; readonly how: 'returned' | 'threw' }

/** A call that was made. */
export interface Called {
  readonly kind: 'called'
  readonly time: Millis
  readonly process: string
  readonly call: string
  /** By which its answer is known. */
  readonly number: number
}

/** What a caller was told. */
export interface Answer {
  readonly kind: 'answer'
  readonly time: Millis
  readonly process: string
  readonly call: string
  readonly number: number
  /** The job it was about, where that is known. */
  readonly id: string | undefined
  /** The number of that job in the script. */
  readonly n: number | undefined
  readonly said: { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly code: string }
}

/** An event, as the store announced it or as a listener in a process heard it. */
export interface Told {
  readonly kind: 'told'
  readonly time: Millis
  /** Undefined: heard at the store itself. */
  readonly process: string | undefined
  readonly event: { readonly type: string; readonly id: string }
}

/** A handler was told that its line is in the log. */
interface Logged {
  readonly kind: 'logged'
  readonly time: Millis
  readonly id: string
}

/** A handler was told what those that its job had waited for came to. */
export interface Given {
  readonly kind: 'given'
  readonly time: Millis
  readonly id: string
  /** Of the run that was told. */
  readonly fence: number
  readonly ended: readonly Ended[]
}

/** A handler took a step, or (with a result) was told what it came to. */
export interface Stepped {
  readonly kind: 'stepped'
  readonly time: Millis
  readonly id: string
  readonly fence: number
  readonly name: string
  readonly result?: string
}

/** A handler was given the signal that it waited for. */
export interface Signalled {
  readonly kind: 'signalled'
  readonly time: Millis
  readonly id: string
  readonly data: string
}

/** A process that ended, by itself or not: nothing runs in it any more. */
interface Gone {
  readonly kind: 'gone'
  readonly time: Millis
  readonly process: string
}

/** Something happened to a process, or to one of its calls, that may keep its worker from starting jobs until then. */
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
  | Answer
  | Logged
  | Given
  | Stepped
  | Signalled
  | Told
  | Gone
  | Disturbed

/** All that happened, with a readable trace of it and counts of what it covered. */
export class History {
  readonly entries: Entry[] = []
  readonly trace: string[] = []
  readonly #counts = new Map<string, number>()
  readonly #time: () => Millis
  #calls = 0

  constructor(time: () => Millis) {
    this.#time = time
  }

  /** Milliseconds since the simulation began. */
  get time(): Millis {
    return this.#time()
  }

  /** A number for one more call of a handler of batches. */
  nextCall(): number {
    return ++this.#calls
  }

  add(entry: Entry): void {
    this.entries.push(entry)
  }

  /** Writes down that something happened to a process, which is well again after so long. */
  disturb(process: string, lasts: Millis): void {
    const time = this.#time()
    this.entries.push({ kind: 'disturbed', time, process, until: time + lasts })
  }

  /** Writes a line of the trace. */
  say(who: string, text: string): void {
    this.trace.push(`${this.#time().toFixed(2).padStart(11)}  ${who.padEnd(6)} ${text}`)
  }

  /** Counts something that was covered. */
  count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1)
  }

  /** How often each thing was covered, by name. */
  counts(): Readonly<Record<string, number>> {
    return Object.fromEntries([...this.#counts].toSorted(([a], [b]) => (a < b ? -1 : 1)))
  }
}

/** What the checker is given besides the history. */
export interface FinalState {
  readonly now: Time
  readonly jobs: readonly JobRecord[]
}
