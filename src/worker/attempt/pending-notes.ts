// worker/attempt/pending-notes.ts: merges a handler's progress, log lines and steps into one note per batch.
import type { Note, NoteEvent } from '../../job/change.js'
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import type { JobRecord, Millis, StepResult } from '../../job/job.js'
import { cleanText } from '../../job/errors/failure.js'
import { encodeJson } from '../../job/values/json.js'
import type { JsonText } from '../../job/values/json.js'
import { note } from '../../job/lifecycle.js'
import type { NoteFields } from '../../job/lifecycle.js'
import type { OpenTransaction } from '../../store/transaction-context.js'
import type { Batcher } from '../../store/batcher.js'
import type { Runtime } from '../../store/runtime.js'
import type { Verdict } from '../../store/store.js'

/** What one call adds to a note. Its memo is encoded when the note is sent. */
export type NoteEntry = Omit<NoteFields, 'memo'> & { readonly memo?: () => JsonText }

/** The part of a note that is published as events. */
export type PublishedNote = Pick<NoteFields, 'progress' | 'about' | 'events'>

/** The entries since the last note was sent. Grows in place: copying it for each line would be quadratic. */
type MergedEntry = { -readonly [Field in keyof NoteEntry]: NoteEntry[Field] } & {
  logs?: string[]
  steps?: StepResult[]
  events?: NoteEvent[]
}

/** How much may wait to be written. */
export interface NoteBounds {
  /** Bytes of log lines of one attempt, those in flight included; a line beyond that is refused. */
  readonly logs: number
  /** Bytes of steps in one note. The first is always accepted; further ones wait for the next note. */
  readonly steps: number
}

const BOUNDS: NoteBounds = { logs: 4 * 2 ** 20, steps: 4 * 2 ** 20 }

/** What a line counts in addition to its text, so that the number of empty lines is bounded, too. */
const LINE_OVERHEAD = 32

interface OpenNote {
  readonly entry: MergedEntry
  /** About how many bytes it holds. */
  bytes: number
  /** About how many bytes of log lines and of steps it holds. */
  logs: number
  steps: number
  readonly done: Promise<void>
  /** It was submitted to the batcher, ahead of any settlement. */
  sent: boolean
  /** The verdict of the settlement that includes it. */
  settlement: Promise<Verdict> | undefined
}

/** The note that was not sent before the handler ended; it is committed with the settlement. */
export interface LastNote {
  readonly entry: NoteEntry
  landed(verdict: Verdict): void
  /** The settlement is not sent any more. */
  failed(error: unknown): void
}

/**
 * The notes of one attempt. Only one is in flight at a time, so that a retried note never overwrites a newer one.
 * Entries made in the meantime go into the next.
 */
export class PendingNotes {
  readonly #record: JobRecord
  readonly #batcher: Pick<Batcher, 'submit'>
  readonly #noted: (entry: NoteEntry) => void
  readonly #refused: () => MillraceError
  readonly #count: (bytes: number) => void
  readonly #bounds: NoteBounds
  #open: OpenNote | undefined
  /** About how many bytes of log lines are unacknowledged. */
  #logs = 0
  #previous: Promise<void> = Promise.resolve()
  #pending = 0

  /**
   * `noted` is called for each note that is durable; `refused` makes the error of a refused one; `count` gets the bytes
   * that begin (negative: cease) to wait here for the store.
   */
  constructor(
    record: JobRecord,
    batcher: Pick<Batcher, 'submit'>,
    noted: (entry: NoteEntry) => void,
    refused: () => MillraceError,
    count: (bytes: number) => void,
    bounds: NoteBounds = BOUNDS,
  ) {
    this.#record = record
    this.#batcher = batcher
    this.#noted = noted
    this.#refused = refused
    this.#count = count
    this.#bounds = bounds
  }

  /** Resolves when all notes so far are acknowledged; undefined if none is pending. */
  get notesSettled(): Promise<void> | undefined {
    return this.#pending === 0 ? undefined : this.#previous
  }

  /**
   * Adds to the next note; resolves when that is durable. Log lines are refused while too many are pending, which never
   * happens to a handler that awaits them.
   */
  add(entry: NoteEntry): Promise<void> {
    const logs = entry.logs?.reduce((sum, line) => sum + line.length + LINE_OVERHEAD, 0) ?? 0
    if (this.#logs + logs > this.#bounds.logs && this.#logs > 0) {
      return Promise.reject(logOverflow(this.#record, this.#bounds.logs))
    }
    const steps = entry.steps?.reduce((sum, { result }) => sum + (result?.length ?? 0), 0) ?? 0
    const before = this.#open
    if (before !== undefined && before.steps > 0 && before.steps + steps > this.#bounds.steps) {
      const waiting = bytesOf(entry)
      this.#count(waiting)
      return this.#previous.then(() => {
        this.#count(-waiting)
        return this.add(entry)
      })
    }
    const open = (this.#open ??= this.#begin())
    const bytes = bytesOf(entry) - bytesReplaced(open.entry, entry)
    merge(open.entry, entry)
    open.bytes += bytes
    this.#count(bytes)
    open.logs += logs
    open.steps += steps
    this.#logs += logs
    return open.done
  }

  /**
   * Removes and returns the note that has not been sent: it is committed with the settlement, which would otherwise
   * overtake it.
   */
  takeLast(): LastNote | undefined {
    const open = this.#open
    if (open === undefined || open.sent) return undefined
    this.#open = undefined
    this.#count(-open.bytes) // from now on it counts as a part of the settlement
    let [landed, failed]: [LastNote['landed'], LastNote['failed']] = [() => {}, () => {}]
    open.settlement = new Promise((resolve, reject) => ([landed, failed] = [resolve, reject]))
    open.settlement.catch(() => {}) // callers that await the note get the error
    return {
      entry: open.entry,
      landed: (verdict) => {
        if (verdict.ok) this.#noted(open.entry)
        landed(verdict)
      },
      failed: (error) => failed(ownError(error)),
    }
  }

  #begin(): OpenNote {
    const done = this.#previous.then(() => this.#send(open))
    const open: OpenNote = { entry: {}, bytes: 0, logs: 0, steps: 0, done, sent: false, settlement: undefined }
    this.#pending++
    const acknowledged = (): void => {
      this.#pending--
      this.#logs -= open.logs
      if (open.settlement === undefined) this.#count(-open.bytes)
    }
    this.#previous = done.then(acknowledged, acknowledged) // callers that await it get the error
    return open
  }

  async #send(open: OpenNote): Promise<void> {
    open.sent = true
    const verdict = await (open.settlement ?? this.#commit(open))
    if (!verdict.ok) throw this.#refused()
  }

  /** Calls `noted` as soon as the verdict is there, because a settlement in the same batch is reported after it. */
  #commit(open: OpenNote): Promise<Verdict> {
    return new Promise((resolve, failed) => {
      const landed = (verdict: Verdict): void => {
        if (verdict.ok) this.#noted(open.entry)
        resolve(verdict)
      }
      this.#batcher.submit(() => this.#seal(open), { landed, failed: (error) => failed(ownError(error)) })
    })
  }

  /** Called when the batch is sent: entries made from now on go into the next note. */
  #seal(open: OpenNote): readonly Note[] {
    if (this.#open === open) this.#open = undefined
    return [noteOf(this.#record, open.entry)]
  }
}

/** The entry of a progress; nothing is stored as null. */
export function progressEntry(value: unknown): NoteEntry {
  return { progress: encodeJson(value ?? null, 'progress') }
}

/** The entry of a log line. */
export function logEntry(line: string): NoteEntry {
  const text = cleanText(String(line))
  encodeJson(text, 'log line')
  return { logs: [text] }
}

/** Makes a note of an entry. */
export function noteOf(record: JobRecord, entry: NoteEntry): Note {
  const { memo } = entry
  return note(record, memo === undefined ? (entry as NoteFields) : { ...entry, memo: memo() })
}

/** Merges two entries. */
export function mergeEntries(before: NoteEntry, after: NoteEntry): NoteEntry {
  const both: MergedEntry = {}
  merge(both, before)
  merge(both, after)
  return both
}

/** Merges an entry into another. Of progress and memo the last counts; everything else is kept. */
function merge(into: MergedEntry, { logs, steps, events, ...last }: NoteEntry): void {
  if (last.progress !== undefined) delete into.about // it belongs to the older progress
  Object.assign(into, last)
  if (logs !== undefined) append((into.logs ??= []), logs)
  if (steps !== undefined) append((into.steps ??= []), steps)
  if (events !== undefined) append((into.events ??= []), events)
}

/** About how many bytes an entry holds, without its memo, which is encoded when it is sent. */
function bytesOf({ progress, about, logs, steps, events }: NoteEntry): number {
  let bytes = (progress?.length ?? 0) + (about?.length ?? 0)
  for (const line of logs ?? []) bytes += line.length
  for (const { name, result } of steps ?? []) bytes += name.length + (result?.length ?? 0)
  for (const event of events ?? []) bytes += event.about.length
  return bytes
}

/** How many of these bytes are dropped when another entry is merged. */
function bytesReplaced({ progress, about }: NoteEntry, by: NoteEntry): number {
  const isNew = by.progress !== undefined
  return (isNew ? (progress?.length ?? 0) : 0) + (isNew || by.about !== undefined ? (about?.length ?? 0) : 0)
}

function append<T>(to: T[], more: readonly T[]): void {
  for (const each of more) to.push(each)
}

/**
 * A copy of an error of the store, which the other callers of the same batch get as well: the error of a call of a
 * handler is marked, and theirs is not to be.
 */
function ownError(error: unknown): unknown {
  if (!isMillraceError(error)) return error
  const { code, message, details, cause } = error
  return new MillraceError(code, message, { cause: cause ?? error, details })
}

function logOverflow({ id, name }: JobRecord, most: number): MillraceError {
  return new MillraceError(
    'LOG_OVERFLOW',
    `A log line of job ${id} ('${name}') was dropped: more than ${most} bytes of its lines wait to be written. Await ctx.log.`,
    { details: { id, most } },
  )
}

/** How often, and with what wait, a note is retried whose job another transaction has locked. */
const LOCKED_TRIES = 50
const LOCKED_WAIT: Millis = 20

/** Writes a note in an open transaction. */
export async function commitNote(
  open: OpenTransaction,
  runtime: Runtime,
  record: JobRecord,
  entry: NoteEntry,
): Promise<Verdict> {
  const change = noteOf(record, entry)
  for (let tries = 1; ; tries++) {
    const [verdict] = await open.commit([[change]])
    if (verdict!.ok || verdict!.why !== 'busy' || tries === LOCKED_TRIES) return verdict!
    await new Promise<void>((resolve) => void runtime.timer(LOCKED_WAIT, resolve))
  }
}
