// conformance/walk.ts: random walks over the port, as plain data that can be stored, shrunk and run again.
import type { HoldScope } from '../job/holds.js'
import type { EdgePolicy } from '../job/job.js'
import { cellKey } from '../store/settings.js'

/** Selects a job among those stored when the step is taken: 0 is the first, just below 1 the last. */
export type Pick = number

/** One change of a group. The job it applies to is selected when the step is taken. */
export type WalkAct =
  | {
      readonly act: 'add'
      readonly id: string
      readonly queue: string
      readonly name: string
      readonly version: number
      readonly priority: number
      readonly lifo: boolean
      readonly group?: string
      readonly attempts: number | 'endless'
      /** Minutes from the commit, or from the start of the walk. */
      readonly run?: { readonly in: number } | { readonly at: number }
      /** Minutes from the commit. */
      readonly expires?: number
      readonly after: readonly WalkEdge[]
      readonly key?: string
      /** Minutes. */
      readonly window?: number
      /** Minutes until it is stale, and until it is removed. */
      readonly keep?: readonly [stale: number, remove: number]
      /** Whether it is the row of a schedule. */
      readonly schedule?: true
    }
  | {
      readonly act: 'complete'
      readonly on: Pick
      readonly old: boolean
      readonly next?: string
      readonly also?: string
    }
  | {
      readonly act: 'wait'
      readonly on: Pick
      readonly old: boolean
      /** Ids of children that it adds. */
      readonly children: readonly string[]
      readonly after: readonly WalkEdge[]
      readonly policy: EdgePolicy
    }
  | { readonly act: JobVerb; readonly on: Pick; readonly old: boolean; readonly value: number }
  | { readonly act: 'put'; readonly key: string; readonly value: unknown; readonly old: boolean }
  /** Holds the jobs of a queue, or of a name or a group in it, for some minutes. */
  | { readonly act: 'hold'; readonly queue: string; readonly of: HoldScope; readonly minutes: number }
  | { readonly act: 'doom' }

/** A dependency on a job, or on one that does not exist. */
export interface WalkEdge {
  readonly on: Pick | 'nobody'
  readonly policy: EdgePolicy
}

/** What can be done to one job. */
export type JobVerb = (typeof verbs)[number]

/** A renewal of the lease of a running job, or of a revoked lease. */
export interface WalkRenewal {
  readonly on: Pick
  readonly old: boolean
  /** Minutes. */
  readonly lease: number
  readonly started: boolean
}

/** A worker's claim. */
export interface WalkAsk {
  readonly worker: string
  readonly queues: readonly string[]
  readonly names: readonly (string | undefined)[]
  readonly versions?: readonly number[]
  /** Minutes. */
  readonly lease: number
  readonly want: number
  readonly ahead: number
}

/** One step of a walk. */
export type WalkStep =
  | {
      readonly step: 'batch'
      /** Which of two writers sends it; each has its own handle. */
      readonly writer: 0 | 1
      readonly groups: readonly (readonly WalkAct[])[]
      readonly renewals: readonly WalkRenewal[]
      readonly asks: readonly WalkAsk[]
    }
  /** The writer sends its last batch again. */
  | { readonly step: 'replay'; readonly writer: 0 | 1 }
  /** Upkeep handles what is due. */
  | { readonly step: 'upkeep' }
  | { readonly step: 'advance'; readonly minutes: number }

/** The queues that walks use. */
export const walkQueues: readonly string[] = ['q1', 'q2', 'full', 'shared']

const verbs = [
  'finish',
  'fail',
  'stumble',
  'snooze',
  'handBack',
  'note',
  'cancel',
  'retry',
  'promote',
  'update',
  'remove',
] as const
const names: readonly string[] = ['a', 'b', 'c']

/** Generates a walk of this many steps; the same seed gives the same walk. */
export function randomWalk(seed: number, steps: number): readonly WalkStep[] {
  const random = new Random(seed)
  return Array.from({ length: steps }, () => randomStep(random))
}

function randomStep(random: Random): WalkStep {
  const roll = random.below(20)
  if (roll < 3) return { step: 'advance', minutes: random.pick([1, 1, 2, 5, 10]) }
  if (roll < 6) return { step: 'upkeep' }
  if (roll < 7) return { step: 'replay', writer: random.pick([0, 1]) }
  if (roll < 8 && random.chance(0.8)) return largeStep(random)
  if (roll < 9 && random.chance(0.4)) return claimStep(random)
  return {
    step: 'batch',
    writer: random.pick([0, 1]),
    groups: random.list(4, () => randomGroup(random)),
    renewals: random.chance(0.3) ? random.list(3, () => randomRenewal(random)) : [],
    asks: random.chance(0.6) ? random.list(2, () => randomAsk(random)) : [],
  }
}

/** Many similar changes: a store that writes them in one statement must get the same result as one by one. */
function largeStep(random: Random): WalkStep {
  const size = 8 + random.below(70)
  return {
    step: 'batch',
    writer: random.pick([0, 1]),
    groups: random.chance(0.5) ? manyAdds(random, size) : manyChanges(random, size),
    renewals: [],
    asks: random.chance(0.6) ? [{ ...randomAsk(random), want: random.below(60) }] : [],
  }
}

function manyAdds(random: Random, size: number): readonly (readonly WalkAct[])[] {
  const model = randomJob(random)
  const keys = model.queue !== 'full' && model.queue !== 'shared' && random.chance(0.4) ? 2 * size : 0
  const mixed = random.chance(0.5)
  const adds = Array.from({ length: size }, (): WalkAct => {
    // At most one reason for a refusal, as in randomJob.
    const id = keys === 0 && random.chance(0.01) ? random.oldId() : random.id()
    const key = keys === 0 ? {} : { key: `crowd ${random.below(keys)}` }
    const group = model.group !== undefined && mixed ? { group: random.pick(['g1', 'g2', 'g3']) } : {}
    return { ...model, id, after: [], ...key, ...group }
  })
  return random.chance(0.3) ? [adds] : adds.map((add) => [add])
}

/** The same change for all jobs, or a different one for each. */
function manyChanges(random: Random, size: number): readonly (readonly WalkAct[])[] {
  const [first, value, mixed] = [random.below(100), random.below(4), random.chance(0.4)]
  const same = random.pick(bulkActs)
  return Array.from({ length: size }, (_, at): readonly WalkAct[] => {
    const [on, old] = [((first + at) % size) / size, random.chance(0.01)]
    const act = mixed ? random.pick(settlingActs) : same
    return [act === 'complete' ? { act, on, old } : { act, on, old, value: mixed ? random.below(4) : value }]
  })
}

/** What lease holders do to their jobs. */
const settlingActs = ['complete', 'finish', 'fail', 'stumble', 'snooze', 'handBack', 'note'] as const
const bulkActs = [...settlingActs, 'finish', 'fail', 'cancel', 'promote', 'remove'] as const

/** One worker claims many jobs, and nothing else happens. */
function claimStep(random: Random): WalkStep {
  const ask = { ...randomAsk(random), want: random.below(20), ahead: random.below(40) }
  return { step: 'batch', writer: random.pick([0, 1]), groups: [], renewals: [], asks: [ask] }
}

function randomGroup(random: Random): readonly WalkAct[] {
  const acts = random.list(random.chance(0.25) ? 4 : 1, () => randomAct(random))
  return random.chance(0.08) ? [...acts, { act: 'doom' }] : acts
}

function randomAct(random: Random): WalkAct {
  const roll = random.below(20)
  if (roll < 8) return randomAdd(random)
  const [on, old] = [random.fraction(), random.chance(0.12)]
  if (roll < 12) {
    const continues = random.chance(0.25)
    return {
      act: 'complete',
      on,
      old,
      ...(continues && { next: random.id() }),
      ...(random.chance(0.2) && { also: random.id() }),
    }
  }
  if (roll < 13) {
    return {
      act: 'wait',
      on,
      old,
      children: random.list(3, () => random.id()).slice(random.below(2)),
      after: randomEdges(random),
      policy: random.pick(policies),
    }
  }
  if (roll < 19) return { act: random.pick(verbs), on, old, value: random.below(4) }
  if (random.chance(0.3)) return randomHold(random)
  return { act: 'put', old, ...random.pick(settings) }
}

function randomHold(random: Random): WalkAct {
  const of = random.pick([{}, { name: 'a' }, { name: 'b' }, { group: 'g1' }, { group: 'g3' }] as const)
  return { act: 'hold', queue: random.pick(['q1', 'shared', 'shared']), of, minutes: 1 + random.below(6) }
}

/** Settings that walks change: pauses, limits, and a cell without meaning. */
const settings: readonly { readonly key: string; readonly value: unknown }[] = [
  { key: cellKey.pause('q1'), value: { all: true, names: [] } },
  { key: cellKey.pause('q1'), value: { all: false, names: ['b'] } },
  { key: cellKey.pause('q1'), value: { all: false, names: [] } },
  { key: cellKey.pause('q1'), value: undefined },
  { key: cellKey.limit('q2'), value: { concurrency: 3, names: { a: { concurrency: 1 } }, by: 'queue' } },
  { key: cellKey.limit('q2'), value: { names: { b: { concurrency: 2 } }, by: 'queue' } },
  { key: cellKey.limit('q2'), value: undefined },
  { key: cellKey.limit('full'), value: { backlog: 4, by: 'queue' } },
  { key: cellKey.limit('full'), value: { backlog: 9, concurrency: 2, by: 'queue' } },
  { key: cellKey.limit('shared'), value: { group: { concurrency: 2 }, groups: { g1: { weight: 2 } }, by: 'queue' } },
  {
    key: cellKey.limit('shared'),
    // Its window ends between the minutes by which walks advance.
    value: { rate: { max: 8, per: 150_000 }, names: { a: { rate: { max: 3, per: 150_000 } } }, by: 'queue' },
  },
  {
    key: cellKey.limit('shared'),
    value: {
      concurrency: 6,
      group: { rate: { max: 2, per: 210_000 }, backlog: 6 },
      groups: { g2: { weight: 0.5, concurrency: 1, backlog: 3 } },
      by: 'queue',
    },
  },
  { key: cellKey.limit('shared'), value: undefined },
  { key: 'plain', value: { text: 'ž' } },
  { key: 'plain', value: undefined },
]

function randomAdd(random: Random): WalkAct {
  const add = randomJob(random)
  if (!random.chance(0.06)) return add
  const { key: _key, window: _window, keep: _keep, expires: _expires, ...plain } = add
  return { ...plain, run: { in: random.below(4) }, after: [], schedule: true }
}

function randomJob(random: Random): WalkAct & { act: 'add' } {
  const queue = random.pick(walkQueues)
  const duplicate = random.chance(0.03)
  // At most one reason for a refusal: which of several reasons a store reports is not a duty.
  const bounded = queue === 'full' || queue === 'shared'
  const keyed = !duplicate && !bounded && random.chance(0.2)
  const after = randomEdges(random)
  const dangling = !duplicate && !keyed && !bounded && random.chance(0.02)
  return {
    act: 'add',
    id: duplicate ? random.oldId() : random.id(),
    queue,
    name: random.pick(names),
    version: random.pick([1, 1, 2]),
    priority: random.pick([0, 0, 0, -1, 1, 5]),
    ...(random.chance(queue === 'shared' ? 0.7 : 0.1)
      ? { lifo: false, group: random.pick(['g1', 'g2', 'g3', 'g4']) }
      : { lifo: random.chance(0.15) }),
    attempts: random.pick([1, 2, 3, 'endless'] as const),
    ...(random.chance(0.2) && { run: random.chance(0.5) ? { in: random.below(6) } : { at: random.below(30) } }),
    ...(random.chance(0.1) && { expires: 1 + random.below(8) }),
    after: dangling ? [...after, { on: 'nobody', policy: 'fail' }] : after,
    ...(keyed && {
      key: random.pick(['k1', 'k2', 'k3', 'k4']),
      ...(random.chance(0.3) && { window: 1 + random.below(9) }),
    }),
    ...(random.chance(0.2) && { keep: [1 + random.below(3), random.below(6)] as const }),
  }
}

const policies: readonly EdgePolicy[] = ['fail', 'fail', 'ignore', 'remove', 'fail-all', 'ignore-all']

function randomEdges(random: Random): readonly WalkEdge[] {
  return random.chance(0.3) ? random.list(3, () => ({ on: random.fraction(), policy: random.pick(policies) })) : []
}

function randomRenewal(random: Random): WalkRenewal {
  return {
    on: random.fraction(),
    old: random.chance(0.3),
    lease: random.pick([0, 1, 2, 5]),
    started: random.chance(0.5),
  }
}

function randomAsk(random: Random): WalkAsk {
  return {
    worker: random.pick(['w1', 'w2', 'w3']),
    queues: random.pick([walkQueues, walkQueues, ['q1'], ['q2', 'full'], ['q2'], ['shared'], ['shared']]),
    names: random.pick([[undefined], [undefined], ['a', 'b'], [undefined, 'c'], ['c']]),
    ...(random.chance(0.15) && { versions: [1] }),
    lease: 1 + random.below(4),
    want: random.below(5),
    ahead: random.chance(0.3) ? random.below(4) : 0,
  }
}

/** Seeded random numbers (mulberry32), and ids in order. */
class Random {
  #state: number
  #ids = 0

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  below(bound: number): number {
    return Math.floor(this.fraction() * bound)
  }

  chance(probability: number): boolean {
    return this.fraction() < probability
  }

  pick<const T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T
  }

  /** A list of one to `most` items. */
  list<T>(most: number, make: () => T): readonly T[] {
    return Array.from({ length: 1 + this.below(most) }, make)
  }

  id(): string {
    return `walk-${++this.#ids}`
  }

  oldId(): string {
    return `walk-${1 + this.below(Math.max(1, this.#ids))}`
  }
}
