// A world and a store that do nothing by themselves: tests run what was deferred, fire timers and answer commits by hand.

import type { Change } from '../../src/job/change.js'
import type { Millis } from '../../src/job/job.js'
import type { Committer } from '../../src/store/batcher.js'
import type { Runtime, Stop } from '../../src/store/runtime.js'
import type { Ask, Batch, Group, Receipt, Refused, Renewal, Verdict } from '../../src/store/store.js'

/** Lets promises that are settled reach those who wait for them. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

interface Timer {
  readonly delay: Millis
  readonly work: () => void
}

/** A store that answers only when the test lets it. */
export class ManualRuntime implements Runtime {
  readonly deferred: (() => void)[] = []
  readonly timers: Timer[] = []
  #ids = 0

  now(): number {
    return 0
  }

  elapsed(): number {
    return 0
  }

  defer(work: () => void): void {
    this.deferred.push(work)
  }

  timer(delay: Millis, work: () => void): Stop {
    const timer = { delay, work }
    this.timers.push(timer)
    return () => void this.timers.splice(this.timers.indexOf(timer), 1)
  }

  random(): number {
    return 0
  }

  id(): string {
    return `id-${++this.#ids}`
  }

  /** Runs what was deferred, and what that leads to. */
  async proceed(): Promise<void> {
    for (let rounds = 0; rounds < 3; rounds++) {
      for (const work of this.deferred.splice(0)) work()
      await turn()
    }
  }

  /** Fires all timers; answers how long they had been set to. */
  async fire(): Promise<readonly Millis[]> {
    const timers = this.timers.splice(0)
    for (const { work } of timers) work()
    await turn()
    await this.proceed()
    return timers.map(({ delay }) => delay)
  }
}

/** A batch on its way, and its answer. */
export interface Sent {
  readonly batch: Batch
  answered: boolean
  /** The answer: everything was applied, except for the given verdicts. */
  land(answer?: Partial<Receipt>): void
  fail(error: unknown): void
}

/** A store that only takes note of what is sent to it. */
export class ScriptedStore implements Committer {
  readonly name = 'scripted'
  readonly sent: Sent[] = []

  commit(batch: Batch): Promise<Receipt> {
    return new Promise((resolve, reject) => {
      const sent: Sent = {
        batch,
        answered: false,
        land(answer = {}) {
          sent.answered = true
          resolve({ ...receiptOf(batch), ...answer })
        },
        fail(error) {
          sent.answered = true
          reject(error)
        },
      }
      this.sent.push(sent)
    })
  }

  /** The batch sent last. */
  get last(): Sent {
    return this.sent.at(-1)!
  }

  /** The ids in the groups of each batch sent. */
  get ids(): readonly (readonly string[])[] {
    return this.sent.map(({ batch }) => batch.groups.flatMap((group) => group.map(idOf)))
  }

  /** Those that have no answer yet. */
  get inFlight(): readonly Sent[] {
    return this.sent.filter((sent) => !sent.answered)
  }
}

export const landed: Verdict = { ok: true, inserted: [] }

/** A refusal over this id. */
export function refused(why: Refused['why'], id: string): Refused {
  return { ok: false, change: 0, why, id }
}

function receiptOf({ writer, seq, groups, renewals, asks }: Batch): Receipt {
  return {
    writer,
    seq,
    now: 0,
    groups: groups.map(() => landed),
    renewals: renewals.map(() => landed),
    asks: asks.map(() => []),
  }
}

/** A group of changes, distinguished by their ids. */
export function group(...ids: readonly string[]): Group {
  return ids.map((id): Change => ({ kind: 'note', id, fence: 1, held: false, progress: '1' }))
}

/** The id that a change was made with. */
export function idOf(change: Change): string {
  return change.kind === 'note' ? change.id : ''
}

/** A wish for this many jobs. */
export function ask(want: number): Ask {
  return { worker: 'w1', queues: ['mill'], handles: [{ name: undefined, lease: 30_000 }], want, ahead: 0 }
}

/** Renewals of the leases of these jobs. */
export function renewals(...ids: readonly string[]): readonly Renewal[] {
  return ids.map((id) => ({ id, fence: 1, lease: 30_000, started: true }))
}

/** What is known of a promise so far. */
export interface Settled<T> {
  value?: T
  error?: unknown
}

/** Listens to a promise, so that a test can look whether it has been settled. */
export function listen<T>(promise: Promise<T>): Settled<T> {
  const settled: Settled<T> = {}
  promise.then(
    (value) => (settled.value = value),
    (error: unknown) => (settled.error = error),
  )
  return settled
}
