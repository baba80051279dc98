// worker/attempt/handler-context.ts: the context that a handler is called with, over its attempt.
import type { Duration } from '../../job/values/duration.js'
import type { PageOptions } from '../../queue/operations/filter.js'
import type { DependencyPage, Ended } from '../../queue/flows/chain-types.js'
import type { AddOptions, Dependency } from '../../queue/add-options.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Inside, Planned } from '../../queue/flows/follow-ups.js'
import type { InTransaction } from '../../queue/transactions.js'
import type { Store } from '../../store/store.js'
import { dependenciesOf } from './children.js'
import type { WaitOptions } from './children.js'
import type { JobContext, JobSignal, PrepareOptions, SignalOptions } from './context.js'
import type { HandlerAttempt } from './handler-attempt.js'
import type { HoldOptions } from './hold.js'
import { logEntry, progressEntry } from './pending-notes.js'
import type { NoteEntry } from './pending-notes.js'

/** The context of one attempt. */
export class Context implements JobContext {
  readonly #attempt: HandlerAttempt

  constructor(attempt: HandlerAttempt) {
    this.#attempt = attempt
  }

  get signal(): JobSignal {
    return this.#attempt.signal()
  }

  // Getters, so that `({ progress, log }) => …` works and handlers that use neither pay nothing.
  get progress() {
    return (value: unknown): Promise<void> => writeNote(this.#attempt, 'ctx.progress', () => progressEntry(value))
  }

  get log() {
    return (line: string): Promise<void> => writeNote(this.#attempt, 'ctx.log', () => logEntry(line))
  }

  get prepare() {
    const attempt = this.#attempt
    const transactions = attempt.guard('ctx.prepare', () => {
      const used = attempt.useTransactions()
      used.access()
      return used
    })
    return <T>(options: PrepareOptions, work: (inside: Inside<Store>) => T | Promise<T>): Promise<T> =>
      attempt.guard('ctx.prepare', () => transactions.prepare(options, work) as Promise<T>)
  }

  get complete(): JobContext['complete'] {
    const attempt = this.#attempt
    return (first: unknown, ...rest: readonly unknown[]): Promise<never> =>
      attempt.guard('ctx.complete', () => {
        const transactions = attempt.useTransactions()
        const done =
          rest.length === 0
            ? transactions.complete(first as () => unknown)
            : transactions.completeInUserTransaction(first as InTransaction, rest[0] as () => unknown)
        return done as Promise<never>
      })
  }

  get add() {
    return (name: string, data?: unknown, options?: AddOptions): Promise<Planned> =>
      this.#attempt.guard('ctx.add', () => add(this.#attempt, name, data, options))
  }

  get waitFor() {
    return (children: Dependency | readonly Dependency[], options?: WaitOptions): never =>
      this.#attempt.guard('ctx.waitFor', () => waitFor(this.#attempt, children, options))
  }

  get dependencies(): JobContext['dependencies'] {
    return (options?: PageOptions) =>
      this.#attempt.guard('ctx.dependencies', () => dependencies(this.#attempt, options) as Promise<never>, true)
  }

  get snooze() {
    return (duration: Duration): never => this.#attempt.guard('ctx.snooze', () => snooze(this.#attempt, duration))
  }

  get hold() {
    return (duration: Duration, options?: HoldOptions): never =>
      this.#attempt.guard('ctx.hold', () => {
        throw this.#attempt.hold(duration, options)
      })
  }

  get step(): JobContext['step'] {
    return <T>(name: string, fn: () => unknown): Promise<T> =>
      this.#attempt.guard('ctx.step', () => this.#attempt.useSteps().step(name, fn) as Promise<T>)
  }

  get sleep() {
    return (name: string, duration: Duration): Promise<void> =>
      this.#attempt.guard('ctx.sleep', () => this.#attempt.useSteps().sleep(name, duration))
  }

  get waitForSignal() {
    return <T>(name: string, options?: SignalOptions): Promise<T> =>
      this.#attempt.guard(
        'ctx.waitForSignal',
        () => this.#attempt.useSteps().waitForSignal(name, options) as Promise<T>,
      )
  }
}

/** Writes a note of a handler. A note that nothing awaits is reported only where the writer does so. */
function writeNote(attempt: HandlerAttempt, call: string, makeEntry: () => NoteEntry): Promise<void> {
  return attempt.guard(call, () => attempt.useProgressWriter().write(makeEntry), false)
}

function add(attempt: HandlerAttempt, name: string, data: unknown, options: AddOptions | undefined): Promise<Planned> {
  const { transactions } = attempt
  if (attempt.done) return Promise.reject(attempt.lostError())
  if (transactions?.userSettlement !== undefined)
    return Promise.reject(outOfOrder('ctx.add was called after ctx.complete({ tx })'))
  return attempt.useChildren().add(transactions?.planning, name, data, options)
}

function snooze(attempt: HandlerAttempt, duration: Duration): never {
  throw attempt.postpone(duration)
}

function waitFor(
  attempt: HandlerAttempt,
  children: Dependency | readonly Dependency[],
  options: WaitOptions | undefined,
): never {
  return attempt.useChildren().waitFor(children, options, attempt.transactions?.followUps !== undefined)
}

function dependencies(
  attempt: HandlerAttempt,
  options: PageOptions | undefined,
): Promise<readonly Ended[] | DependencyPage> {
  const { parts, record, definition } = attempt
  return dependenciesOf(parts.operations, record, definition, () => attempt.lostError(), options)
}
