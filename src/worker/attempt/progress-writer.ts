// worker/attempt/progress-writer.ts: writes the notes of a handler: with the next batch, or in the open transaction.
import { isMillraceError } from '../../job/errors/errors.js'
import { joinedTransaction } from '../../store/transaction-context.js'
import type { OpenTransaction } from '../../store/transaction-context.js'
import { AwaitedPromise } from '../../queue/flows/awaited.js'
import type { Attempt } from './attempt.js'
import { PendingNotes, commitNote } from './pending-notes.js'
import type { NoteEntry } from './pending-notes.js'

/** Writes the notes of one attempt. Created when its handler writes the first. */
export class ProgressWriter {
  readonly #attempt: Attempt
  readonly #notes: PendingNotes
  #overflowed = false

  constructor(attempt: Attempt) {
    const { parts, record } = attempt
    this.#attempt = attempt
    this.#notes = attempt.notes = new PendingNotes(
      record,
      parts.connection.main,
      (entry) => attempt.noted(entry),
      () => attempt.lostError(),
      (bytes) => parts.backpressure.count(bytes),
    )
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
    this.#attempt.callbackFailed('ctx.log', error)
  }

  /** Rejects with an error, and reports it if the handler does not await the call. */
  #reject(error: unknown): Promise<void> {
    let awaited = false
    const refused = new AwaitedPromise<void>(
      (_resolve, reject) => reject(error),
      () => void (awaited = true),
      false,
    )
    this.#attempt.parts.connection.runtime.defer(() => {
      if (!awaited) this.#attempt.callbackFailed('ctx.progress or ctx.log', error)
    })
    return refused
  }

  /** Adds to the next note, or writes in the open transaction. Resolves when it is durable, or written there. */
  note(entry: NoteEntry): Promise<void> {
    const { lost, done, transactions: work } = this.#attempt
    if (lost !== undefined || done) return Promise.reject(this.#attempt.lostError())
    if (work?.opening !== undefined) return work.opening.then(() => this.note(entry))
    const open = work === undefined ? joinedTransaction(this.#attempt.parts.connection.store) : work.joined
    return open === undefined ? this.#notes.add(entry) : this.#noteInTransaction(open, entry)
  }

  /** Writes a note in the open transaction; publishes it when that is committed. */
  async #noteInTransaction(open: OpenTransaction, entry: NoteEntry): Promise<void> {
    const { parts, record } = this.#attempt
    const verdict = await commitNote(open, parts.connection.runtime, record, entry)
    if (!verdict.ok) throw this.#attempt.lostError()
    open.afterCommit(() => this.#attempt.noted(entry))
  }
}
