// worker/notes.ts: what a handler says while it runs, gathered into one note a batch.
import type { Note } from '../job/change.js'
import type { MillraceError } from '../job/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import type { JsonText } from '../job/json.js'
import { note } from '../job/lifecycle.js'
import type { Said } from '../job/lifecycle.js'
import type { OpenTransaction } from '../store/ambient.js'
import type { Lane } from '../store/batcher.js'
import type { Runtime } from '../store/runtime.js'
import type { Verdict } from '../store/store.js'

/** What a handler says; its memo is made when the note leaves. */
export type Spoken = Omit<Said, 'memo'> & { readonly memo?: () => JsonText }

/** What others are told of a note. */
export type Told = Pick<Said, 'progress' | 'about' | 'tells'>

interface OpenNote {
  said: Spoken
  readonly written: Promise<void>
  /** It is in the lane, before any settlement. */
  sent: boolean
  /** The verdict of the settlement that took it along. */
  taken: Promise<Verdict> | undefined
}

/** What a handler said just before it ended. */
export interface LastWords {
  readonly said: Spoken
  told(verdict: Verdict): void
  /** What it was to go with is not sent any more. */
  failed(error: unknown): void
}

/**
 * The notes of one attempt. One is under way at a time, so that none that had to be sent again can overtake a newer one;
 * what is said meanwhile goes with the next.
 */
export class Notes {
  readonly #record: JobRecord
  readonly #lane: Lane
  readonly #noted: (said: Told, verdict: Verdict) => void
  readonly #refused: () => MillraceError
  #open: OpenNote | undefined
  #before: Promise<void> = Promise.resolve()
  #underWay = 0

  /** `noted` hears what became of each note; `refused` makes the error for one that was. */
  constructor(
    record: JobRecord,
    lane: Lane,
    noted: (said: Told, verdict: Verdict) => void,
    refused: () => MillraceError,
  ) {
    this.#record = record
    this.#lane = lane
    this.#noted = noted
    this.#refused = refused
  }

  /** Resolves when all of them have been answered; undefined where none is under way. */
  get quiet(): Promise<void> | undefined {
    return this.#underWay === 0 ? undefined : this.#before
  }

  /** Adds to the note that leaves next; resolves when that is durable. */
  add(said: Spoken): Promise<void> {
    const open = (this.#open ??= this.#begin())
    open.said = together(open.said, said)
    return open.written
  }

  /** Takes out what has not left yet: it goes with the settlement, or it would be overtaken by it. */
  takeLast(): LastWords | undefined {
    const open = this.#open
    if (open === undefined || open.sent) return undefined
    this.#open = undefined
    let [told, failed]: [LastWords['told'], LastWords['failed']] = [() => {}, () => {}]
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
    const open: OpenNote = { said: NOTHING, written, sent: false, taken: undefined }
    this.#underWay++
    const answered = (): void => void this.#underWay--
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

const NOTHING: Spoken = {}

/** What was said as a note. */
export function written(record: JobRecord, said: Spoken): Note {
  const { memo } = said
  return note(record, memo === undefined ? (said as Said) : { ...said, memo: memo() })
}

/** Two notes as one: of what says where a job is the last counts, and nothing else is lost. */
export function together(before: Spoken, after: Spoken): Spoken {
  if (before === NOTHING) return after
  const { about: _about, ...rest } = before
  return {
    ...(after.progress === undefined ? before : rest),
    ...after,
    ...(before.logs !== undefined && after.logs !== undefined && { logs: [...before.logs, ...after.logs] }),
    ...(before.steps !== undefined && after.steps !== undefined && { steps: [...before.steps, ...after.steps] }),
    ...(before.tells !== undefined && after.tells !== undefined && { tells: [...before.tells, ...after.tells] }),
  }
}

/** How often a note is tried again whose job somebody else's transaction holds, and the wait between. */
const LOCKED_TRIES = 50
const LOCKED_AGAIN: Millis = 20

/** Writes a note in an open transaction. */
export async function commitNote(
  open: OpenTransaction,
  runtime: Runtime,
  record: JobRecord,
  said: Spoken,
): Promise<Verdict> {
  const change = written(record, said)
  for (let tries = 1; ; tries++) {
    const [verdict] = await open.commit([[change]])
    if (verdict!.ok || verdict!.why !== 'busy' || tries === LOCKED_TRIES) return verdict!
    await new Promise<void>((resolve) => void runtime.timer(LOCKED_AGAIN, resolve))
  }
}
