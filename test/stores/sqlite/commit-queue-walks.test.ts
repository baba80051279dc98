// Random walks in which several writers commit at the same time on one SQLite store, beside one whose batches fail:
// compared with the reference, to which the same batches are sent one by one.
import { expect, test } from 'vitest'
import { randomWalk } from 'millrace/conformance'
import { same } from '../../../src/conformance/check.js'
import { upkeep } from '../../../src/conformance/compare.js'
import { Driver } from '../../../src/conformance/driver.js'
import type { Parts } from '../../../src/conformance/driver.js'
import { Walker } from '../../../src/conformance/snapshot.js'
import { MINUTE, resolve } from '../../../src/conformance/resolve.js'
import type { WalkStep } from '../../../src/conformance/walk.js'
import type { Receipt } from '../../../src/store/store.js'
import { memoryHarness } from '../../conformance/clock.js'
import { fileHarness } from '../../conformance/sqlite.js'

const FIRST = Number(process.env['MILLRACE_SEED'] ?? 1)
const PARTS = 2
const WALKS = 10
const STEPS = 60
/** How many commit at the same time, at most. */
const WRITERS = 6

type BatchStep = WalkStep & { readonly step: 'batch' }

/** A walk on both stores. */
class Pair {
  readonly expected: Walker
  readonly actual: Walker
  readonly #writers: readonly (readonly [expected: Driver, actual: Driver])[]
  readonly #seen = new Set<string>()

  private constructor(expected: Walker, actual: Walker) {
    this.expected = expected
    this.actual = actual
    this.#writers = Array.from({ length: WRITERS }, (_, n) => {
      return [new Driver(expected.store, `writer-${n}`), new Driver(actual.store, `writer-${n}`)] as const
    })
  }

  static async begin(): Promise<Pair> {
    const pair = new Pair(await Walker.begin(await memoryHarness()), await Walker.begin(await fileHarness()))
    await pair.actual.store.commit({ writer: 'behind', seq: 9, groups: [], renewals: [], asks: [] })
    return pair
  }

  /** Sends batches one by one to the reference, and at the same time to the store. */
  async commit(steps: readonly BatchStep[]): Promise<void> {
    const sent: Parts[] = []
    const receipts: Receipt[] = []
    for (const [n, step] of steps.entries()) {
      const [jobs, cells] = [await this.expected.jobs(), await this.expected.cells()]
      const parts = resolve(step, { jobs, cells, began: this.expected.began })
      sent.push(parts)
      receipts.push(await this.#writers[n]![0].commit(parts))
      for (const { id } of await this.expected.jobs()) this.#seen.add(id)
    }
    const half = Math.ceil(sent.length / 2)
    const send = (parts: Parts, n: number): Promise<Receipt> => this.#writers[n]![1].commit(parts)
    const first = sent.slice(0, half).map(send)
    const behind = this.actual.store.commit({ writer: 'behind', seq: 3, groups: [], renewals: [], asks: [] })
    const rest = sent.slice(half).map((parts, n) => send(parts, half + n))
    await expect(behind).rejects.toMatchObject({ code: 'WRITER_BEHIND' })
    for (const [n, receipt] of (await Promise.all([...first, ...rest])).entries())
      await this.#compare(receipt, receipts[n]!)
  }

  async upkeep(): Promise<void> {
    const parts = await upkeep(this.expected)
    for (const { drivers } of [this.expected, this.actual]) await drivers[0].commit(parts)
    for (const { id } of await this.expected.jobs()) this.#seen.add(id)
  }

  async advance(minutes: number): Promise<void> {
    for (const { harness } of [this.expected, this.actual]) await harness.advance(minutes * MINUTE)
  }

  /** Compares everything that can be read. */
  async look(what: string): Promise<void> {
    same(await this.actual.contradictions(), [], `${what}: the store does not contradict itself`)
    const [expected, actual] = [this.expected, this.actual].map((walker) => walker.look(undefined, [...this.#seen]))
    same(await actual, await expected, `${what}: the stores are equal`)
  }

  async #compare(actual: Receipt, expected: Receipt): Promise<void> {
    const brief = (walker: Walker, receipt: Receipt): Promise<unknown> => walker.readBrief(receipt, false)
    same(await brief(this.actual, actual), await brief(this.expected, expected), 'the receipts are equal')
  }

  async end(): Promise<void> {
    await this.expected.end()
    await this.actual.end()
  }
}

/** The steps of a walk, with consecutive batches taken together. */
function inChunks(walk: readonly WalkStep[]): readonly (readonly WalkStep[])[] {
  const chunks: WalkStep[][] = []
  for (const step of walk) {
    const last = chunks.at(-1)
    if (step.step === 'batch' && last?.[0]?.step === 'batch' && last.length < WRITERS) last.push(step)
    else chunks.push([step])
  }
  return chunks
}

for (let part = 0; part < PARTS; part++) {
  const first = FIRST + part * WALKS
  test(
    `writers that commit at the same time come to what they come to one by one, from seed ${first} on`,
    {
      timeout: 180_000,
    },
    async () => {
      for (let seed = first; seed < first + WALKS; seed++) {
        const pair = await Pair.begin()
        for (const [at, chunk] of inChunks(randomWalk(seed, STEPS)).entries()) {
          const [step] = chunk
          if (step!.step === 'advance') await pair.advance(step!.minutes)
          else if (step!.step === 'upkeep') await pair.upkeep()
          else if (step!.step === 'batch') await pair.commit(chunk as readonly BatchStep[])
          if (at % 5 === 0) await pair.look(`seed ${seed}, after part ${at + 1}`)
        }
        await pair.look(`seed ${seed}, at its end`)
        await pair.end()
      }
    },
  )
}
