// conformance/walk.ts: random walks over the port, as plain values that can be stored, cut down and run again.
import type { EdgePolicy } from '../job/job.js'
import { cellKey } from '../store/settings.js'

/** A choice among the jobs there are when the step is taken: 0 is the first, just below 1 the last. */
export type Pick = number

/** One change of a group, by what it means; whom it meets is found out when the step is taken. */
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
      /** Minutes from the commit, or from the beginning of the walk. */
      readonly run?: { readonly in: number } | { readonly at: number }
      readonly after: readonly WalkEdge[]
      readonly key?: string
      /** Minutes. */
      readonly window?: number
      /** Minutes until it is stale, and until it is removed. */
      readonly keep?: readonly [stale: number, remove: number]
      /** It is the row of a schedule. */
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
  | { readonly act: 'doom' }

/** A wait for some job, or for one that is not there. */
export interface WalkEdge {
  readonly on: Pick | 'nobody'
  readonly policy: EdgePolicy
}

/** What can be done to one job. */
export type JobVerb = (typeof verbs)[number]

/** A renewal of some running job, or of one that was taken away. */
export interface WalkRenewal {
  readonly on: Pick
  readonly old: boolean
  /** Minutes. */
  readonly lease: number
  readonly started: boolean
}

/** A worker's wish. */
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
      /** Which of two writers sends it, each through a handle of its own. */
      readonly writer: 0 | 1
      readonly groups: readonly (readonly WalkAct[])[]
      readonly renewals: readonly WalkRenewal[]
      readonly asks: readonly WalkAsk[]
    }
  /** The writer's last batch again. */
  | { readonly step: 'replay'; readonly writer: 0 | 1 }
  /** What is due is decided. */
  | { readonly step: 'upkeep' }
  | { readonly step: 'advance'; readonly minutes: number }

/** The queues that walks go through. */
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

/** A walk of so many steps; the same seed gives the same walk. */
export function randomWalk(seed: number, steps: number): readonly WalkStep[] {
  const dice = new Dice(seed)
  return Array.from({ length: steps }, () => randomStep(dice))
}

function randomStep(dice: Dice): WalkStep {
  const roll = dice.below(20)
  if (roll < 3) return { step: 'advance', minutes: dice.among([1, 1, 2, 5, 10]) }
  if (roll < 6) return { step: 'upkeep' }
  if (roll < 7) return { step: 'replay', writer: dice.among([0, 1]) }
  if (roll < 8 && dice.chance(0.8)) return crowdedStep(dice)
  if (roll < 9 && dice.chance(0.4)) return askingStep(dice)
  return {
    step: 'batch',
    writer: dice.among([0, 1]),
    groups: dice.list(4, () => randomGroup(dice)),
    renewals: dice.chance(0.3) ? dice.list(3, () => randomRenewal(dice)) : [],
    asks: dice.chance(0.6) ? dice.list(2, () => randomAsk(dice)) : [],
  }
}

/** Many at once and much alike: what a store may write in one statement must come to the same as one by one. */
function crowdedStep(dice: Dice): WalkStep {
  const size = 8 + dice.below(70)
  return {
    step: 'batch',
    writer: dice.among([0, 1]),
    groups: dice.chance(0.5) ? crowdOfAdds(dice, size) : crowdOfChanges(dice, size),
    renewals: [],
    asks: dice.chance(0.6) ? [{ ...randomAsk(dice), want: dice.below(60) }] : [],
  }
}

function crowdOfAdds(dice: Dice, size: number): readonly (readonly WalkAct[])[] {
  const model = randomJob(dice)
  const keys = model.queue !== 'full' && model.queue !== 'shared' && dice.chance(0.4) ? 2 * size : 0
  const mixed = dice.chance(0.5)
  const adds = Array.from({ length: size }, (): WalkAct => {
    // One refusal at a time, as below.
    const id = keys === 0 && dice.chance(0.01) ? dice.oldId() : dice.id()
    const key = keys === 0 ? {} : { key: `crowd ${dice.below(keys)}` }
    const group = model.group !== undefined && mixed ? { group: dice.among(['g1', 'g2', 'g3']) } : {}
    return { ...model, id, after: [], ...key, ...group }
  })
  return dice.chance(0.3) ? [adds] : adds.map((add) => [add])
}

/** The same for all of them, or something else for each. */
function crowdOfChanges(dice: Dice, size: number): readonly (readonly WalkAct[])[] {
  const [first, value, mixed] = [dice.below(100), dice.below(4), dice.chance(0.4)]
  const same = dice.among(crowding)
  return Array.from({ length: size }, (_, at): readonly WalkAct[] => {
    const [on, old] = [((first + at) % size) / size, dice.chance(0.01)]
    const act = mixed ? dice.among(settling) : same
    return [act === 'complete' ? { act, on, old } : { act, on, old, value: mixed ? dice.below(4) : value }]
  })
}

/** What holders do to their jobs. */
const settling = ['complete', 'finish', 'fail', 'stumble', 'snooze', 'handBack', 'note'] as const
const crowding = [...settling, 'finish', 'fail', 'cancel', 'promote', 'remove'] as const

/** One worker asks for many, and nothing else happens. */
function askingStep(dice: Dice): WalkStep {
  const ask = { ...randomAsk(dice), want: dice.below(20), ahead: dice.below(40) }
  return { step: 'batch', writer: dice.among([0, 1]), groups: [], renewals: [], asks: [ask] }
}

function randomGroup(dice: Dice): readonly WalkAct[] {
  const acts = dice.list(dice.chance(0.25) ? 4 : 1, () => randomAct(dice))
  return dice.chance(0.08) ? [...acts, { act: 'doom' }] : acts
}

function randomAct(dice: Dice): WalkAct {
  const roll = dice.below(20)
  if (roll < 8) return randomAdd(dice)
  const [on, old] = [dice.fraction(), dice.chance(0.12)]
  if (roll < 12) {
    const continues = dice.chance(0.25)
    return {
      act: 'complete',
      on,
      old,
      ...(continues && { next: dice.id() }),
      ...(dice.chance(0.2) && { also: dice.id() }),
    }
  }
  if (roll < 13) {
    return {
      act: 'wait',
      on,
      old,
      children: dice.list(3, () => dice.id()).slice(dice.below(2)),
      after: randomEdges(dice),
      policy: dice.among(policies),
    }
  }
  if (roll < 19) return { act: dice.among(verbs), on, old, value: dice.below(4) }
  return { act: 'put', old, ...dice.among(settings) }
}

/** Settings worth changing on the way: pauses, limits, and a cell that means nothing. */
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
    // Its end falls between the minutes by which walks advance.
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

function randomAdd(dice: Dice): WalkAct {
  const add = randomJob(dice)
  if (!dice.chance(0.06)) return add
  const { key: _key, window: _window, keep: _keep, ...plain } = add
  return { ...plain, run: { in: dice.below(4) }, after: [], schedule: true }
}

function randomJob(dice: Dice): WalkAct & { act: 'add' } {
  const queue = dice.among(walkQueues)
  const taken = dice.chance(0.03)
  // One refusal at a time: which of several reasons is told first is not a duty.
  const bounded = queue === 'full' || queue === 'shared'
  const keyed = !taken && !bounded && dice.chance(0.2)
  const after = randomEdges(dice)
  const lost = !taken && !keyed && !bounded && dice.chance(0.02)
  return {
    act: 'add',
    id: taken ? dice.oldId() : dice.id(),
    queue,
    name: dice.among(names),
    version: dice.among([1, 1, 2]),
    priority: dice.among([0, 0, 0, -1, 1, 5]),
    ...(dice.chance(queue === 'shared' ? 0.7 : 0.1)
      ? { lifo: false, group: dice.among(['g1', 'g2', 'g3', 'g4']) }
      : { lifo: dice.chance(0.15) }),
    attempts: dice.among([1, 2, 3, 'endless'] as const),
    ...(dice.chance(0.2) && { run: dice.chance(0.5) ? { in: dice.below(6) } : { at: dice.below(30) } }),
    after: lost ? [...after, { on: 'nobody', policy: 'fail' }] : after,
    ...(keyed && { key: dice.among(['k1', 'k2', 'k3', 'k4']), ...(dice.chance(0.3) && { window: 1 + dice.below(9) }) }),
    ...(dice.chance(0.2) && { keep: [1 + dice.below(3), dice.below(6)] as const }),
  }
}

const policies: readonly EdgePolicy[] = ['fail', 'fail', 'ignore', 'remove', 'fail-all', 'ignore-all']

function randomEdges(dice: Dice): readonly WalkEdge[] {
  return dice.chance(0.3) ? dice.list(3, () => ({ on: dice.fraction(), policy: dice.among(policies) })) : []
}

function randomRenewal(dice: Dice): WalkRenewal {
  return { on: dice.fraction(), old: dice.chance(0.3), lease: dice.among([0, 1, 2, 5]), started: dice.chance(0.5) }
}

function randomAsk(dice: Dice): WalkAsk {
  return {
    worker: dice.among(['w1', 'w2', 'w3']),
    queues: dice.among([walkQueues, walkQueues, ['q1'], ['q2', 'full'], ['q2'], ['shared'], ['shared']]),
    names: dice.among([[undefined], [undefined], ['a', 'b'], [undefined, 'c'], ['c']]),
    ...(dice.chance(0.15) && { versions: [1] }),
    lease: 1 + dice.below(4),
    want: dice.below(5),
    ahead: dice.chance(0.3) ? dice.below(4) : 0,
  }
}

/** Chance from a seed (mulberry32), and ids in order. */
class Dice {
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

  among<const T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T
  }

  /** From one to `most` things. */
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
