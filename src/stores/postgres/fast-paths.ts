// stores/postgres/fast-paths.ts: the shortest way for a batch: most do nothing but add jobs alike, or ask for jobs once.
import type { Ask, Batch } from '../../store/store.js'
import type { FunctionName } from './calls.js'
import type { Value } from './drivers/driver.js'
import { encoded, stateOf } from './errors.js'
import type { Body } from './encode.js'
import { UNIT } from './rows.js'

/** A call that does all that a batch asks for. */
interface Way {
  readonly name: Extract<FunctionName, 'add_one_v1' | 'add_shared_v1' | 'add_v2' | 'claim_v2'>
  readonly values: readonly Value[]
}

/** How many batches go the long way after one for which the short way was none: what was in its way mostly stays. */
const DETOUR = 20

/** The short ways of one process. */
export class FastPaths {
  readonly #origin: string
  readonly #floors: (ask: Ask) => object | undefined
  /** Batches that are not sent this way any more, for now. */
  readonly #detours: Record<Way['name'], number> = { add_one_v1: 0, add_shared_v1: 0, add_v2: 0, claim_v2: 0 }
  /**
   * Writers whose last batch got no answer. A claim that finds nothing leaves no trace, so that a late original of that batch
   * could still land after it: these go the long way, which leaves their number in any case.
   */
  readonly #unsure = new Set<string>()

  constructor(origin: string, floors: (ask: Ask) => object | undefined) {
    this.#origin = origin
    this.#floors = floors
  }

  /** Sends a batch by a short way, and answers what that does; nothing if there is none for it. */
  async go(batch: Batch, body: Body, call: (way: Way) => Promise<string | null>): Promise<string | null> {
    const first = !this.#unsure.has(batch.writer)
    this.#unsure.add(batch.writer)
    for (const way of first ? encoded(() => this.#of(batch, body)) : []) {
      if (this.#detours[way.name] > 0) {
        this.#detours[way.name]--
        continue
      }
      try {
        const answer = await call(way)
        if (answer !== null) return answer
        this.#detours[way.name] = DETOUR
      } catch (error) {
        if (!isNoWay(error)) throw error
        this.#detours[way.name] = DETOUR
        break
      }
    }
    return null
  }

  /** A batch was answered. */
  answered(batch: Batch): void {
    this.#unsure.delete(batch.writer)
  }

  /** The ways that a batch may go, the shortest first. One job is added the shortest way while nobody watches events. */
  #of(batch: Batch, body: Body): readonly Way[] {
    const way = this.#adding(batch, body) ?? this.#claiming(batch, body)
    if (way === undefined) return []
    return way.name === 'add_one_v1' ? [way, { ...way, name: 'add_v2' }] : [way]
  }

  #adding(batch: Batch, { s: steps, now }: Body): Way | undefined {
    const [step] = steps
    if (steps.length !== 1 || step?.k !== 'i' || batch.renewals.length + batch.asks.length > 0) return undefined
    if (step.guard || step.ra || step.ri) return undefined
    const { q, l, qn, p, lifo, at, s, id, d, g } = step
    if (g !== undefined) {
      const [ids, data, groups] = [id.join(UNIT), d.map((each) => each ?? '').join(UNIT), g.join(UNIT)]
      const values = [batch.writer, batch.seq, this.#origin, q, l, qn, p, at, s, ids, data, groups, now ?? null]
      return { name: 'add_shared_v1', values }
    }
    const [ids, data] = id.length === 1 ? [id[0]!, d[0]!] : [id.join(UNIT), d.map((each) => each ?? '').join(UNIT)]
    const values = [batch.writer, batch.seq, this.#origin, q, l, qn, p, String(lifo), at, s, ids, data, now ?? null]
    return { name: id.length === 1 ? 'add_one_v1' : 'add_v2', values }
  }

  #claiming({ writer, seq, groups, renewals, asks }: Batch, { now }: Body): Way | undefined {
    const [ask] = asks
    if (ask === undefined || asks.length > 1 || groups.length + renewals.length > 0) return undefined
    const { worker, queues, handles, want, ahead } = ask
    const named = handles.filter(({ name }) => name !== undefined)
    // Several handlers of one name, each for versions of its own, or one for versions of all names: rare, and told apart the long way.
    if (handles.some(({ versions }) => versions !== undefined)) {
      if (new Set(named.map(({ name }) => name)).size < named.length) return undefined
      if (handles.some(({ name, versions }) => name === undefined && versions !== undefined)) return undefined
    }
    const limits = queues.map((queue) => `limit:${queue}`)
    const names = arrayOf(named.map(({ name }) => name!))
    const known = arrayOf(named.map(({ versions }) => (versions === undefined ? '' : `{${versions.join(',')}}`)))
    const leases = arrayOf(named.map(({ lease }) => String(lease)))
    const other = handles.find(({ name }) => name === undefined)?.lease ?? null
    const floors = this.#floors(ask)
    const below = floors === undefined ? null : JSON.stringify(floors)
    const asked = [arrayOf(queues), arrayOf(limits), names, known, leases, other, Math.max(0, want), Math.max(0, ahead)]
    const values = [writer, seq, this.#origin, worker, ...asked, below, now ?? null]
    return { name: 'claim_v2', values }
  }
}

/** Texts as PostgreSQL reads an array. */
function arrayOf(texts: readonly string[]): string {
  return `{${texts.map((text) => `"${text.replaceAll(/["\\]/g, '\\$&')}"`).join(',')}}`
}

/** Whether an error says that a short way was none, and that nothing was written: an id is taken, or a job not alike. */
function isNoWay(error: unknown): boolean {
  const state = stateOf((error as { cause?: unknown }).cause ?? error)
  return state === '23505' || state === 'MR006'
}
