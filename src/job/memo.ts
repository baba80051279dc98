// job/memo.ts: a job's memo: the state of its phases, and the deliveries of its end to a webhook.
import type { ErrorInfo, FinishedState, JobRecord, Time } from './job.js'
import type { JsonText } from './values/json.js'

/** The status of a phase. */
export type PhaseStatus = 'pending' | 'active' | 'completed' | 'failed' | 'cancelled'

/** The state of a phase. */
export interface PhaseState {
  readonly status: PhaseStatus
  /** From 0 to 100; absent before its first report. */
  readonly progress?: number
  /** The result of a completed phase that returned something. */
  readonly result?: JsonText
  /** The error of a failed phase that has not started again. */
  readonly error?: ErrorInfo
  /** Attempts of this phase that have failed. */
  readonly failures?: number
  /** How often the job had stalled when the phase started; absent: never. */
  readonly stalls?: number
  /** When it started, by the store's clock as its worker knows it; absent before that. */
  readonly startedAt?: Time
  /** When it ended, by the same clock; absent before that, and of a phase that ended with its job. */
  readonly endedAt?: Time
}

/** One attempt to deliver to a webhook. */
export interface DeliveryEntry {
  /** The same for all attempts of a delivery; sent as `webhook-id`. */
  readonly id: string
  /** When it ended. */
  readonly at: Time
  /** The state that was to be reported. */
  readonly event: FinishedState
  /** The webhook's URL. */
  readonly url: string
  /** Which attempt of the delivery it was; the first is 1. */
  readonly attempt: number
  /** The HTTP status of the response, where there was one. */
  readonly status?: number
  /** Why the webhook did not accept it, if it did not. */
  readonly error?: string
}

/** The state of a job's phases and deliveries. */
export interface Memo {
  /** All phases by name, in order, once the first has started. */
  readonly phases?: Readonly<Record<string, PhaseState>>
  /** The last delivery attempts of its end. */
  readonly deliveries?: readonly DeliveryEntry[]
  /** The `finishedAt` of the end that has been delivered: the job may have ended again since. */
  readonly webhookSent?: Time
  /** The `finishedAt` of the end whose delivery was given up. */
  readonly webhookGaveUp?: Time
  /** Deliveries requested by hand that have not ended. */
  readonly redeliveries?: readonly Redelivery[]
}

/** A delivery requested by hand. */
export interface Redelivery {
  /** The `id` of its `DeliveryEntry`s. */
  readonly id: string
  /** When it was requested, by the clock of the requesting process. */
  readonly at: Time
  /** The `finishedAt` of the end that it reports. */
  readonly of: Time | undefined
}

const NOTHING: Memo = Object.freeze({})

/** Reads the memo of a job. */
export function memoOf({ memo }: Pick<JobRecord, 'memo'>): Memo {
  if (memo === undefined) return NOTHING
  const { phases, ...rest } = JSON.parse(memo) as WrittenMemo
  if (phases === undefined) return rest
  const states = Object.entries(phases).map(([name, [short, more]]) => [name, { status: statusOf[short], ...more }])
  return { ...rest, phases: Object.fromEntries(states) as Memo['phases'] & {} }
}

/** Encodes a memo briefly: it is written with every phase, and rows that grow cost most. */
export function writeMemo({ phases, ...rest }: Memo): JsonText {
  if (phases === undefined) return JSON.stringify(rest)
  // Concatenated by hand: this runs several times for every job with phases.
  let text = ''
  for (const name in phases) {
    const state = phases[name]!
    const more = moreOf(state)
    text += `${text === '' ? '' : ','}${JSON.stringify(name)}:["${shortOf[state.status]}"${more === '' ? '' : `,{${more.slice(1)}}`}]`
  }
  const others = JSON.stringify(rest)
  return `{"phases":{${text}}${others === '{}' ? '' : `,${others.slice(1, -1)}`}}`
}

/** Encodes the fields of a phase besides its status, each with a comma before it. */
function moreOf({ progress, result, error, failures, stalls, startedAt, endedAt }: PhaseState): string {
  let text = ''
  if (progress !== undefined) text += `,"progress":${JSON.stringify(progress)}`
  if (result !== undefined) text += `,"result":${JSON.stringify(result)}`
  if (error !== undefined) text += `,"error":${JSON.stringify(error)}`
  if (failures !== undefined) text += `,"failures":${failures}`
  if (stalls !== undefined) text += `,"stalls":${stalls}`
  if (startedAt !== undefined) text += `,"startedAt":${startedAt}`
  if (endedAt !== undefined) text += `,"endedAt":${endedAt}`
  return text
}

const shortOf = { pending: 'p', active: 'a', completed: 'c', failed: 'f', cancelled: 'x' } as const
const statusOf = { p: 'pending', a: 'active', c: 'completed', f: 'failed', x: 'cancelled' } as const

type WrittenPhase = readonly [status: keyof typeof statusOf, more?: Omit<PhaseState, 'status'>]

interface WrittenMemo extends Omit<Memo, 'phases'> {
  readonly phases?: Readonly<Record<string, WrittenPhase>>
}
