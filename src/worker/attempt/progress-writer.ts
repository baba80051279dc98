// worker/attempt/progress-writer.ts: how what a handler says gets to the store: with the next batch, or in the transaction that is open.
import { isMillraceError } from '../../job/errors.js'
import type { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { joinedTransaction } from '../../store/transaction-context.js'
import type { OpenTransaction } from '../../store/transaction-context.js'
import type { Verdict } from '../../store/store.js'
import { AwaitedPromise } from './awaited.js'
import { PendingNotes, commitNote } from './pending-notes.js'
import type { LastNote, NoteEntry, NoteOutcome } from './pending-notes.js'

/** The attempt that says something. */
interface Speaker {
  readonly record: JobRecord
  /** Why it is no longer this worker's. */
  readonly lost: unknown
  readonly done: boolean
  readonly transactions:
    | { readonly opening: Promise<void> | undefined; readonly joined: OpenTransaction | undefined }
    | undefined
  notOurs(): MillraceError
}

/** What is needed of its worker. */
interface SayingHost<Attempt> {
  readonly desk: JobOperations
  noted(attempt: Attempt, said: NoteOutcome, verdict: Verdict): void
  misbehaved(attempt: Attempt, what: string, cause: unknown): void
}

/** What one attempt says. Made when its handler first says something. */
export class ProgressWriter<Attempt extends Speaker = Speaker> {
  readonly #attempt: Attempt
  readonly #host: SayingHost<Attempt>
  readonly #notes: PendingNotes
  #overflowed = false

  constructor(attempt: Attempt, host: SayingHost<Attempt>) {
    this.#attempt = attempt
    this.#host = host
    const noted = (said: NoteOutcome, verdict: Verdict): void => host.noted(attempt, said, verdict)
    this.#notes = new PendingNotes(attempt.record, host.desk.connection.main, noted, () => attempt.notOurs())
  }

  /** Writes what a handler says. Those who await it hear of a failure; those who do not are not brought down by it. */
  say(what: () => NoteEntry): Promise<void> {
    let said: NoteEntry
    try {
      said = what()
    } catch (error) {
      return this.#mistake(error)
    }
    const noted = this.note(said)
    noted.catch((error: unknown) => this.#dropped(error))
    return noted
  }

  /** Whoever does not wait for log lines learns once that some were dropped. */
  #dropped(error: unknown): void {
    if (this.#overflowed || !isMillraceError(error, 'LOG_OVERFLOW')) return
    this.#overflowed = true
    this.#host.misbehaved(this.#attempt, 'ctx.log', error)
  }

  /** What cannot be written is told to the host, if nobody waits to hear of it. */
  #mistake(error: unknown): Promise<void> {
    let heard = false
    const refused = new AwaitedPromise<void>(
      (_resolve, reject) => reject(error),
      () => void (heard = true),
      false,
    )
    this.#host.desk.connection.runtime.defer(() => {
      if (!heard) this.#host.misbehaved(this.#attempt, 'ctx.progress or ctx.log', error)
    })
    return refused
  }

  /** Adds to what leaves with the next batch; resolves when it is durable. */
  note(said: NoteEntry): Promise<void> {
    const { lost, done, transactions: work } = this.#attempt
    if (lost !== undefined || done) return Promise.reject(this.#attempt.notOurs())
    if (work?.opening !== undefined) return work.opening.then(() => this.note(said))
    const open = work === undefined ? joinedTransaction(this.#host.desk.connection.store) : work.joined
    return open === undefined ? this.#notes.add(said) : this.#noteWithin(open, said)
  }

  /** What was said last and has not left yet. */
  takeLast(): LastNote | undefined {
    return this.#notes.takeLast()
  }

  /** Resolves when all that was said until now is durable or refused; undefined where nothing is under way. */
  get quiet(): Promise<void> | undefined {
    return this.#notes.quiet
  }

  /** What is said in a transaction lands with it, and is told of when it has. */
  async #noteWithin(open: OpenTransaction, said: NoteEntry): Promise<void> {
    const verdict = await commitNote(open, this.#host.desk.connection.runtime, this.#attempt.record, said)
    if (!verdict.ok) throw this.#attempt.notOurs()
    open.afterCommit(() => this.#host.noted(this.#attempt, said, verdict))
  }
}
