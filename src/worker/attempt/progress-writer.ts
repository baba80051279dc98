// worker/attempt/progress-writer.ts: writes the notes of a handler: with the next batch, or in the open transaction.
import { isMillraceError } from '../../job/errors.js'
import type { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { joinedTransaction } from '../../store/transaction-context.js'
import type { OpenTransaction } from '../../store/transaction-context.js'
import type { Verdict } from '../../store/store.js'
import { AwaitedPromise } from '../../queue/flows/awaited.js'
import { PendingNotes, commitNote } from './pending-notes.js'
import type { LastNote, NoteEntry, PublishedNote } from './pending-notes.js'

/** The attempt whose notes are written. */
interface NotingAttempt {
  readonly record: JobRecord
  /** Why the lease is lost. */
  readonly lost: unknown
  readonly done: boolean
  readonly transactions:
    | { readonly opening: Promise<void> | undefined; readonly joined: OpenTransaction | undefined }
    | undefined
  lostError(): MillraceError
}

/** What the writer needs of its worker. */
interface ProgressWriterHost<Attempt> {
  readonly operations: JobOperations
  noted(attempt: Attempt, note: PublishedNote, verdict: Verdict): void
  countNotes(bytes: number): void
  callbackFailed(attempt: Attempt, what: string, cause: unknown): void
}

/** Writes the notes of one attempt. Created when its handler writes the first. */
export class ProgressWriter<Attempt extends NotingAttempt = NotingAttempt> {
  readonly #attempt: Attempt
  readonly #host: ProgressWriterHost<Attempt>
  readonly #notes: PendingNotes
  #overflowed = false

  constructor(attempt: Attempt, host: ProgressWriterHost<Attempt>) {
    this.#attempt = attempt
    this.#host = host
    const noted = (entry: PublishedNote, verdict: Verdict): void => host.noted(attempt, entry, verdict)
    const { main } = host.operations.connection
    const count = (bytes: number): void => host.countNotes(bytes)
    this.#notes = new PendingNotes(attempt.record, main, noted, () => attempt.lostError(), count)
  }

  /** Writes an entry. A caller that awaits it gets the error; one that does not causes no unhandled rejection. */
  write(makeEntry: () => NoteEntry): Promise<void> {
    let entry: NoteEntry
    try {
      entry = makeEntry()
    } catch (error) {
      return this.#reject(error)
    }
    const noted = this.note(entry)
    noted.catch((error: unknown) => this.#reportOverflow(error))
    return noted
  }

  /** Reports once that log lines were dropped, for handlers that do not await them. */
  #reportOverflow(error: unknown): void {
    if (this.#overflowed || !isMillraceError(error, 'LOG_OVERFLOW')) return
    this.#overflowed = true
    this.#host.callbackFailed(this.#attempt, 'ctx.log', error)
  }

  /** Rejects with an error, and reports it to the host if the handler does not await the call. */
  #reject(error: unknown): Promise<void> {
    let awaited = false
    const refused = new AwaitedPromise<void>(
      (_resolve, reject) => reject(error),
      () => void (awaited = true),
      false,
    )
    this.#host.operations.connection.runtime.defer(() => {
      if (!awaited) this.#host.callbackFailed(this.#attempt, 'ctx.progress or ctx.log', error)
    })
    return refused
  }

  /** Adds to the next note, or writes in the open transaction. Resolves when it is durable, or written there. */
  note(entry: NoteEntry): Promise<void> {
    const { lost, done, transactions: work } = this.#attempt
    if (lost !== undefined || done) return Promise.reject(this.#attempt.lostError())
    if (work?.opening !== undefined) return work.opening.then(() => this.note(entry))
    const open = work === undefined ? joinedTransaction(this.#host.operations.connection.store) : work.joined
    return open === undefined ? this.#notes.add(entry) : this.#noteInTransaction(open, entry)
  }

  /** Removes and returns the note that has not been sent yet. */
  takeLast(): LastNote | undefined {
    return this.#notes.takeLast()
  }

  /** Resolves when all notes so far are durable or refused; undefined if none is pending. */
  get notesSettled(): Promise<void> | undefined {
    return this.#notes.notesSettled
  }

  /** Writes a note in the open transaction; publishes it when that is committed. */
  async #noteInTransaction(open: OpenTransaction, entry: NoteEntry): Promise<void> {
    const verdict = await commitNote(open, this.#host.operations.connection.runtime, this.#attempt.record, entry)
    if (!verdict.ok) throw this.#attempt.lostError()
    open.afterCommit(() => this.#host.noted(this.#attempt, entry, verdict))
  }
}
