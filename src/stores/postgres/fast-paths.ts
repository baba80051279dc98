// stores/postgres/fast-paths.ts: sends batches that only add similar jobs, only complete jobs, or only make one claim, in
// one call. The engine applies everything else.
import type { Ask, Batch } from '../../store/store.js'
import type { FunctionName } from './calls.js'
import type { Value } from './drivers/driver.js'
import { encoded, sqlStateOf } from './errors.js'
import { addCallFor } from './fast-add.js'
import { claimValues } from './fast-claim.js'
import { completionsIn } from './fast-complete.js'
import type { LaneFinder } from './lanes.js'
import type { IsOwnId } from './own-ids.js'

/** A call that does everything in a batch. */
interface FastCall {
  readonly name: Extract<FunctionName, 'add_one' | 'add_shared' | 'add_many' | 'fast_complete' | 'fast_claim'>
  readonly values: readonly Value[]
}

/**
 * How many batches skip a fast path after one that it could not handle, because the reason mostly persists. Of completions, the
 * reason may be a lock of another batch that was waited for a moment too long: one batch skips at first, and twice as many each
 * time that the reason persists.
 */
const SKIP = 20

/** The fast paths of one process. */
export class FastPaths {
  readonly #origin: string
  readonly #cursorsFor: (ask: Ask) => object | undefined
  /** How many batches are still to skip each fast path. */
  readonly #skips: Record<FastCall['name'], number> = {
    add_one: 0,
    add_shared: 0,
    add_many: 0,
    fast_complete: 0,
    fast_claim: 0,
  }
  /** How many batches skipped the one of completions last; 0: it handled the last one. */
  #skippedLast = 0
  /**
   * Writers whose last batch got no answer. On a fast path a claim that finds nothing does not record the batch's number, so
   * that the late original of that batch could still be applied after it. These writers use `commit`: it always does.
   */
  readonly #unanswered = new Set<string>()
  /** How many batches are still not to be predicted. */
  #wrongPredictions = 0

  constructor(origin: string, cursorsFor: (ask: Ask) => object | undefined) {
    this.#origin = origin
    this.#cursorsFor = cursorsFor
  }

  /**
   * Sends a batch by a fast path, and returns its answer; `null` if the engine has to apply it over its working set,
   * `undefined` if that may be predicted.
   */
  async send(
    batch: Batch,
    context: { readonly lanes: LaneFinder; readonly isOwnId: IsOwnId; readonly now: number | null },
    call: (fastCall: FastCall) => Promise<string | null>,
  ): Promise<string | null | undefined> {
    const answered = !this.#unanswered.has(batch.writer)
    this.#unanswered.add(batch.writer)
    if (!answered) return null
    const fastCalls = encoded(() => this.#callsFor(batch, context))
    if (fastCalls.length === 0) return this.#predicts(batch) ? undefined : null
    for (const fastCall of fastCalls) {
      if (this.#skips[fastCall.name] > 0) {
        this.#skips[fastCall.name]--
        continue
      }
      try {
        const answer = await this.#call(fastCall, call)
        if (answer !== null) {
          if (fastCall.name === 'fast_complete') this.#skippedLast = 0
          return answer
        }
        this.#refused(fastCall.name)
      } catch (error) {
        if (!isUnsuitable(error)) throw error
        this.#refused(fastCall.name)
        break
      }
    }
    // The reason may be a lock that was waited for a moment too long: on a busy server, also one of its own.
    return fastCalls[0]!.name === 'fast_complete' && this.#predicts(batch) ? undefined : null
  }

  /** Sends completions once more at first. */
  async #call(fastCall: FastCall, call: (fastCall: FastCall) => Promise<string | null>): Promise<string | null> {
    if (fastCall.name !== 'fast_complete' || this.#skippedLast > 0) return call(fastCall)
    return call(fastCall).catch((error: unknown) => {
      if (isUnsuitable(error)) return call(fastCall)
      throw error
    })
  }

  #refused(name: FastCall['name']): void {
    if (name === 'fast_complete') this.#skippedLast = Math.min(SKIP, Math.max(1, 2 * this.#skippedLast))
    this.#skips[name] = name === 'fast_complete' ? this.#skippedLast : SKIP
  }

  /** Whether to predict the working set of a batch: not soon after a wrong prediction. */
  #predicts({ groups, renewals }: Batch): boolean {
    if (groups.length + renewals.length === 0) return false
    return this.#wrongPredictions === 0 || --this.#wrongPredictions === 0
  }

  /** Applies a predicted batch; undefined if that is not possible. */
  async tryPredicted<T>(apply: () => Promise<T | undefined>): Promise<T | undefined> {
    const applied = await apply().catch((error: unknown) => {
      if (!isUnsuitable(error)) throw error
      return undefined
    })
    if (applied === undefined) this.#wrongPredictions = SKIP
    return applied
  }

  /** Records that a batch was answered. */
  answered(batch: Batch): void {
    this.#unanswered.delete(batch.writer)
  }

  /** The fast calls that may handle a batch, the fastest first: `add_one` works only while no process watches events. */
  #callsFor(
    batch: Batch,
    { lanes, isOwnId, now }: { readonly lanes: LaneFinder; readonly isOwnId: IsOwnId; readonly now: number | null },
  ): readonly FastCall[] {
    const { writer, seq, groups, renewals, asks } = batch
    const whole = (name: FastCall['name'], values: readonly Value[]): FastCall => {
      return { name, values: [writer, seq, this.#origin, ...values, now] }
    }
    if (renewals.length > 0) return []
    const [ask] = asks
    if (ask !== undefined) {
      const values = asks.length > 1 || groups.length > 0 ? undefined : claimValues(ask, this.#cursorsFor(ask))
      return values === undefined ? [] : [whole('fast_claim', values)]
    }
    const completions = completionsIn(batch)
    if (completions !== undefined) return [whole('fast_complete', completions)]
    const add = addCallFor(batch, lanes, isOwnId)
    if (add === undefined) return []
    const fastCall = whole(add.name, add.values)
    return add.name === 'add_one' ? [fastCall, { ...fastCall, name: 'add_many' }] : [fastCall]
  }
}

/**
 * Whether an error means that the fast path cannot handle the batch and wrote nothing: an id is taken, a job differs, or
 * another transaction holds a row.
 */
function isUnsuitable(error: unknown): boolean {
  const state = sqlStateOf((error as { cause?: unknown }).cause ?? error)
  return state === '23505' || state === 'MR006'
}
