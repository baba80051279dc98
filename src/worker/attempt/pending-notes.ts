// worker/attempt/pending-notes.ts: what a handler says while it runs, gathered into one note a batch.
import type { Note, NoteEvent } from '../../job/change.js'
import { MillraceError } from '../../job/errors.js'
import type { JobRecord, Millis, StepResult } from '../../job/job.js'
import type { JsonText } from '../../job/json.js'
import { note } from '../../job/lifecycle.js'
import type { NoteFields } from '../../job/lifecycle.js'
import type { OpenTransaction } from '../../store/transaction-context.js'
import type { Batcher } from '../../store/batcher.js'
import type { Runtime } from '../../store/runtime.js'
import type { Verdict } from '../../store/store.js'

/** What a handler says; its memo is made when the note leaves. */
export type NoteEntry = Omit<NoteFields, 'memo'> & { readonly memo?: () => JsonText }

/** What others are told of a note. */
export type NoteOutcome = Pick<NoteFields, 'progress' | 'about' | 'tells'>

/** What was said since the last note left. It grows in place: a copy for each line would make many of them quadratic. */
type Gathered = { -readonly [Field in keyof NoteEntry]: NoteEntry[Field] } & {
  logs?: string[]
  steps?: StepResult[]
  tells?: NoteEvent[]
}

/** What may wait to be written. */
export interface NoteBounds {
  /** Bytes of log lines of one attempt, those under way included; a line past it is refused. */
  readonly logs: number
  /** Bytes of steps in one note, of which the first is always taken; further ones wait for the next note. */
  readonly steps: number
}

const BOUNDS: NoteBounds = { logs: 4 * 2 ** 20, steps: 4 * 2 ** 20 }

/** What a line takes beside its text, so that very many empty ones are bounded, too. */
const LINE = 32

interface OpenNote {
  readonly said: Gathered
  /** About how many bytes of log lines and of steps it holds. */
  logs: number
  steps: number
  readonly written: Promise<void>
  /** It is in the lane, before any settlement. */
  sent: boolean
  /** The verdict of the settlement that took it along. */
  taken: Promise<Verdict> | undefined
}

/** What a handler said just before it ended. */
export interface LastNote {
  readonly said: NoteEntry
  told(verdict: Verdict): void
  /** What it was to go with is not sent any more. */
  failed(error: unknown): void
}

/**
 * The notes of one attempt. One is under way at a time, so that none that had to be sent again can overtake a newer one;
 * what is said meanwhile goes with the next.
 */
export class PendingNotes {
  readonly #record: JobRecord
  readonly #lane: Pick<Batcher, 'submit'>
  readonly #noted: (said: NoteOutcome, verdict: Verdict) => void
  readonly #refused: () => MillraceError
  readonly #bounds: NoteBounds
  #open: OpenNote | undefined
  /** About how many bytes of log lines are not answered yet. */
  #logs = 0
  #before: Promise<void> = Promise.resolve()
  #underWay = 0

  /** `noted` hears what became of each note; `refused` makes the error for one that was. */
  constructor(
    record: JobRecord,
    lane: Pick<Batcher, 'submit'>,
    noted: (said: NoteOutcome, verdict: Verdict) => void,
    refused: () => MillraceError,
    bounds: NoteBounds = BOUNDS,
  ) {
    this.#record = record
    this.#lane = lane
    this.#noted = noted
    this.#refused = refused
    this.#bounds = bounds
  }

  /** Resolves when all of them have been answered; undefined where none is under way. */
  get quiet(): Promise<void> | undefined {
    return this.#underWay === 0 ? undefined : this.#before
  }

  /**
   * Adds to the note that leaves next; resolves when that is durable. A handler that waits for its log lines never has too many
   * of them pending; those of one that does not are refused while too many are.
   */
  add(said: NoteEntry): Promise<void> {
    const logs = said.logs?.reduce((sum, line) => sum + line.length + LINE, 0) ?? 0
    if (this.#logs + logs > this.#bounds.logs && this.#logs > 0) {
      return Promise.reject(overflow(this.#record, this.#bounds.logs))
    }
    const steps = said.steps?.reduce((sum, { result }) => sum + (result?.length ?? 0), 0) ?? 0
    const before = this.#open
    if (before !== undefined && before.steps > 0 && before.steps + steps > this.#bounds.steps) {
      return this.#before.then(() => this.add(said))
    }
    const open = (this.#open ??= this.#begin())
    gather(open.said, said)
    open.logs += logs
    open.steps += steps
    this.#logs += logs
    return open.written
  }

  /** Takes out what has not left yet: it goes with the settlement, or it would be overtaken by it. */
  takeLast(): LastNote | undefined {
    const open = this.#open
    if (open === undefined || open.sent) return undefined
    this.#open = undefined
    let [told, failed]: [LastNote['told'], LastNote['failed']] = [() => {}, () => {}]
    open.taken = new Promise((resolve, reject) => ([told, failed] = [resolve, reject]))
    open.taken.catch(() => {}) // those who await the note hear of it
    return {
      said: open.said,
      told: (verdict) => {
        this.#noted(open.said, verdict)
        told(verdict)
      },
      failed,
    }
  }

  #begin(): OpenNote {
    const written = this.#before.then(() => this.#send(open))
    const open: OpenNote = { said: {}, logs: 0, steps: 0, written, sent: false, taken: undefined }
    this.#underWay++
    const answered = (): void => {
      this.#underWay--
      this.#logs -= open.logs
    }
    this.#before = written.then(answered, answered) // those who await it hear of it; nobody has to
    return open
  }

  async #send(open: OpenNote): Promise<void> {
    open.sent = true
    const verdict = await (open.taken ?? this.#commit(open))
    if (!verdict.ok) throw this.#refused()
  }

  /** What became of it is told at once: a settlement may land with it, and is told of after it. */
  #commit(open: OpenNote): Promise<Verdict> {
    return new Promise((resolve, failed) => {
      const landed = (verdict: Verdict): void => {
        this.#noted(open.said, verdict)
        resolve(verdict)
      }
      this.#lane.submit(() => this.#leave(open), { landed, failed })
    })
  }

  /** Made when its batch leaves: what is said from now on is for the next. */
  #leave(open: OpenNote): readonly Note[] {
    if (this.#open === open) this.#open = undefined
    return [written(this.#record, open.said)]
  }
}

/** What was said as a note. */
export function written(record: JobRecord, said: NoteEntry): Note {
  const { memo } = said
  return note(record, memo === undefined ? (said as NoteFields) : { ...said, memo: memo() })
}

/** Two notes as one. */
export function together(before: NoteEntry, after: NoteEntry): NoteEntry {
  const both: Gathered = {}
  gather(both, before)
  gather(both, after)
  return both
}

/** Adds to what was said before: of what says where a job is the last counts, and nothing else is lost. */
function gather(into: Gathered, { logs, steps, tells, ...last }: NoteEntry): void {
  if (last.progress !== undefined) delete into.about // that of another progress
  Object.assign(into, last)
  if (logs !== undefined) append((into.logs ??= []), logs)
  if (steps !== undefined) append((into.steps ??= []), steps)
  if (tells !== undefined) append((into.tells ??= []), tells)
}

function append<T>(to: T[], more: readonly T[]): void {
  for (const each of more) to.push(each)
}

function overflow({ id, name }: JobRecord, most: number): MillraceError {
  return new MillraceError(
    'LOG_OVERFLOW',
    `A log line of job ${id} ('${name}') was dropped: more than ${most} bytes of its lines wait to be written. Await ctx.log.`,
    { details: { id, most } },
  )
}

/** How often a note is tried again whose job somebody else's transaction holds, and the wait between. */
const LOCKED_TRIES = 50
const LOCKED_AGAIN: Millis = 20

/** Writes a note in an open transaction. */
export async function commitNote(
  open: OpenTransaction,
  runtime: Runtime,
  record: JobRecord,
  said: NoteEntry,
): Promise<Verdict> {
  const change = written(record, said)
  for (let tries = 1; ; tries++) {
    const [verdict] = await open.commit([[change]])
    if (verdict!.ok || verdict!.why !== 'busy' || tries === LOCKED_TRIES) return verdict!
    await new Promise<void>((resolve) => void runtime.timer(LOCKED_AGAIN, resolve))
  }
}
