// stores/postgres/fast-paths.ts: fast paths for batches that only add similar jobs, or only make one claim.
import type { Ask, Batch } from '../../store/store.js'
import type { FunctionName } from './calls.js'
import type { Value } from './drivers/driver.js'
import { encoded, sqlStateOf } from './errors.js'
import type { Body } from './encode.js'
import { UNIT } from './rows.js'

/** A call that does everything in a batch. */
interface FastCall {
  readonly name: Extract<FunctionName, 'add_one' | 'add_shared' | 'add_many' | 'claim'>
  readonly values: readonly Value[]
}

/** How many batches skip a fast path after one that it could not handle, because the reason mostly persists. */
const SKIP = 20

/** The fast paths of one process. */
export class FastPaths {
  readonly #origin: string
  readonly #cursorsFor: (ask: Ask) => object | undefined
  /** How many batches are still to skip each fast path. */
  readonly #skips: Record<FastCall['name'], number> = { add_one: 0, add_shared: 0, add_many: 0, claim: 0 }
  /**
   * Writers whose last batch got no answer. On a fast path a claim that finds nothing does not record the batch's number, so
   * that the late original of that batch could still be applied after it. These writers use `commit`: it always does.
   */
  readonly #unanswered = new Set<string>()

  constructor(origin: string, cursorsFor: (ask: Ask) => object | undefined) {
    this.#origin = origin
    this.#cursorsFor = cursorsFor
  }

  /** Sends a batch by a fast path, and returns its answer; `null` if no fast path can handle it. */
  async send(batch: Batch, body: Body, call: (fastCall: FastCall) => Promise<string | null>): Promise<string | null> {
    const answered = !this.#unanswered.has(batch.writer)
    this.#unanswered.add(batch.writer)
    for (const fastCall of answered ? encoded(() => this.#callsFor(batch, body)) : []) {
      if (this.#skips[fastCall.name] > 0) {
        this.#skips[fastCall.name]--
        continue
      }
      try {
        const answer = await call(fastCall)
        if (answer !== null) return answer
        this.#skips[fastCall.name] = SKIP
      } catch (error) {
        if (!isUnsuitable(error)) throw error
        this.#skips[fastCall.name] = SKIP
        break
      }
    }
    return null
  }

  /** Records that a batch was answered. */
  answered(batch: Batch): void {
    this.#unanswered.delete(batch.writer)
  }

  /** The fast calls that may handle a batch, the fastest first: `add_one` works only while no process watches events. */
  #callsFor(batch: Batch, body: Body): readonly FastCall[] {
    const fastCall = this.#add(batch, body) ?? this.#claim(batch, body)
    if (fastCall === undefined) return []
    return fastCall.name === 'add_one' ? [fastCall, { ...fastCall, name: 'add_many' }] : [fastCall]
  }

  #add(batch: Batch, { s: steps, now }: Body): FastCall | undefined {
    const [step] = steps
    if (steps.length !== 1 || step?.k !== 'i' || batch.renewals.length + batch.asks.length > 0) return undefined
    if (step.guard || step.ra || step.ri) return undefined
    const { q, l, qn, p, lifo, at, s, id, d, g } = step
    if (g !== undefined) {
      const [ids, data, groups] = [id.join(UNIT), d.map((each) => each ?? '').join(UNIT), g.join(UNIT)]
      const values = [batch.writer, batch.seq, this.#origin, q, l, qn, p, at, s, ids, data, groups, now ?? null]
      return { name: 'add_shared', values }
    }
    const [ids, data] = id.length === 1 ? [id[0]!, d[0]!] : [id.join(UNIT), d.map((each) => each ?? '').join(UNIT)]
    const values = [batch.writer, batch.seq, this.#origin, q, l, qn, p, String(lifo), at, s, ids, data, now ?? null]
    return { name: id.length === 1 ? 'add_one' : 'add_many', values }
  }

  #claim({ writer, seq, groups, renewals, asks }: Batch, { now }: Body): FastCall | undefined {
    const [ask] = asks
    if (ask === undefined || asks.length > 1 || groups.length + renewals.length > 0) return undefined
    const { worker, queues, handles, want, ahead } = ask
    const named = handles.filter(({ name }) => name !== undefined)
    // Several handlers of one name for different versions, or one for some versions of all names: rare, so `commit` does it.
    if (handles.some(({ versions }) => versions !== undefined)) {
      if (new Set(named.map(({ name }) => name)).size < named.length) return undefined
      if (handles.some(({ name, versions }) => name === undefined && versions !== undefined)) return undefined
    }
    const limits = queues.map((queue) => `limit:${queue}`)
    const names = arrayOf(named.map(({ name }) => name!))
    const versionsOf = arrayOf(named.map(({ versions }) => (versions === undefined ? '' : `{${versions.join(',')}}`)))
    const leases = arrayOf(named.map(({ lease }) => String(lease)))
    const otherLease = handles.find(({ name }) => name === undefined)?.lease ?? null
    const cursors = this.#cursorsFor(ask)
    const cursorsText = cursors === undefined ? null : JSON.stringify(cursors)
    const claim = [
      arrayOf(queues),
      arrayOf(limits),
      names,
      versionsOf,
      leases,
      otherLease,
      Math.max(0, want),
      Math.max(0, ahead),
    ]
    const values = [writer, seq, this.#origin, worker, ...claim, cursorsText, now ?? null]
    return { name: 'claim', values }
  }
}

/** Encodes texts as a PostgreSQL array literal. */
function arrayOf(texts: readonly string[]): string {
  return `{${texts.map((text) => `"${text.replaceAll(/["\\]/g, '\\$&')}"`).join(',')}}`
}

/** Whether an error means that the fast path cannot handle the batch and wrote nothing: an id is taken, or a job differs. */
function isUnsuitable(error: unknown): boolean {
  const state = sqlStateOf((error as { cause?: unknown }).cause ?? error)
  return state === '23505' || state === 'MR006'
}
