// job/memo.ts: what a job's memo says: how far its phases are, and what was delivered about its end.
import type { ErrorInfo, FinishedState, JobRecord, Time } from './job.js'
import type { JsonText } from './json.js'

/** How far a phase is. */
export type PhaseStatus = 'pending' | 'active' | 'completed' | 'failed' | 'cancelled'

/** What is known of a phase besides its name. */
export interface PhaseState {
  readonly status: PhaseStatus
  /** From 0 to 100; absent before it has told any. */
  readonly progress?: number
  /** What it returned, of one that is completed and returned something. */
  readonly result?: JsonText
  /** What it threw, of one that failed and has not begun again. */
  readonly error?: ErrorInfo
  /** Attempts of this phase that have failed. */
  readonly failures?: number
  /** How often the job had stalled when it began; absent: never. */
  readonly stalls?: number
}

/** One attempt to tell a webhook. */
export interface DeliveryEntry {
  /** The same for all attempts of a delivery; sent along as `webhook-id`. */
  readonly id: string
  /** When it ended. */
  readonly at: Time
  /** The end that was to be told. */
  readonly event: FinishedState
  /** Where it was to be told. */
  readonly url: string
  /** Which attempt of the delivery it was; the first is 1. */
  readonly attempt: number
  /** The status of the answer, where there was one. */
  readonly status?: number
  /** Why it was not taken, where it was not. */
  readonly error?: string
}

/** What was written down about a job. */
export interface Memo {
  /** By their names, all of them in order, once the first has begun. */
  readonly phases?: Readonly<Record<string, PhaseState>>
  /** Deliveries of its end, the last of them. */
  readonly deliveries?: readonly DeliveryEntry[]
  /** The end that has been told, by its `finishedAt`: it may have ended again since. */
  readonly webhookSent?: Time
  /** The end that could not be told, and is not tried any more. */
  readonly webhookGaveUp?: Time
  /** Deliveries that were asked for by hand, until they have ended. */
  readonly redeliveries?: readonly Redelivery[]
}

/** A delivery that was asked for by hand. */
export interface Redelivery {
  /** As it is in entries. */
  readonly id: string
  /** When it was asked for, by the clock of the process that did. */
  readonly at: Time
  /** The end that it tells, by its `finishedAt`. */
  readonly of: Time | undefined
}

const NOTHING: Memo = Object.freeze({})

/** What is written down about a job. */
export function memoOf({ memo }: Pick<JobRecord, 'memo'>): Memo {
  if (memo === undefined) return NOTHING
  const { phases, ...rest } = JSON.parse(memo) as WrittenMemo
  if (phases === undefined) return rest
  const states = Object.entries(phases).map(([name, [short, more]]) => [name, { status: statusOf[short], ...more }])
  return { ...rest, phases: Object.fromEntries(states) as Memo['phases'] & {} }
}

/** A memo as a job holds it: short, since it is written with every phase, and rows that grow cost most. */
export function writeMemo({ phases, ...rest }: Memo): JsonText {
  if (phases === undefined) return JSON.stringify(rest)
  // Put together by hand: this runs several times for every job in phases.
  let text = ''
  for (const name in phases) {
    const state = phases[name]!
    const more = moreOf(state)
    text += `${text === '' ? '' : ','}${JSON.stringify(name)}:["${shortOf[state.status]}"${more === '' ? '' : `,{${more.slice(1)}}`}]`
  }
  const others = JSON.stringify(rest)
  return `{"phases":{${text}}${others === '{}' ? '' : `,${others.slice(1, -1)}`}}`
}

/** What is known of a phase besides its status, each with a comma before it. */
function moreOf({ progress, result, error, failures, stalls }: PhaseState): string {
  let text = ''
  if (progress !== undefined) text += `,"progress":${JSON.stringify(progress)}`
  if (result !== undefined) text += `,"result":${JSON.stringify(result)}`
  if (error !== undefined) text += `,"error":${JSON.stringify(error)}`
  if (failures !== undefined) text += `,"failures":${failures}`
  if (stalls !== undefined) text += `,"stalls":${stalls}`
  return text
}

const shortOf = { pending: 'p', active: 'a', completed: 'c', failed: 'f', cancelled: 'x' } as const
const statusOf = { p: 'pending', a: 'active', c: 'completed', f: 'failed', x: 'cancelled' } as const

type WrittenPhase = readonly [status: keyof typeof statusOf, more?: Omit<PhaseState, 'status'>]

interface WrittenMemo extends Omit<Memo, 'phases'> {
  readonly phases?: Readonly<Record<string, WrittenPhase>>
}
