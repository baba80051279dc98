// conformance/compare.ts: takes two stores along the same walk and tells where they part.
import { equal, present, same } from './check.js'
import { ids } from './driver.js'
import type { Parts } from './driver.js'
import type { MakeHarness } from './harness.js'
import { Walker } from './observe.js'
import { decideDue, MINUTE, resolve } from './resolve.js'
import { shrinkWalk } from './shrink.js'
import { randomWalk, walkQueues } from './walk.js'
import type { WalkStep } from './walk.js'
import type { Receipt } from '../store/store.js'

/** Steps between two looks at all jobs, where not everything is looked at. */
const GLANCE = 5

/** Where two stores part. */
export interface Divergence {
  /** The step after which they differ, from 0. */
  readonly step: number
  /** What differs: `receipt`, `get`, `due`, `events`, …; or `itself`, where the store contradicts itself. */
  readonly what: string
  /** What the reference says. */
  readonly expected: unknown
  /** What the store says. */
  readonly actual: unknown
}

/** How to compare. */
export interface CompareOptions {
  /** Cut a walk that tells two stores apart down to a small one. Default true. */
  readonly shrink?: boolean
  /**
   * Receipts are compared after every step, all that can be read after every so many, and the jobs in between after every
   * fifth. Default 1.
   */
  readonly every?: number
}

/**
 * Takes a store and the reference along a random walk; rejects where they part, with the smallest walk found that
 * tells them apart, to be run again by `compareWalk`.
 */
export async function compareStores(
  make: MakeHarness,
  reference: MakeHarness,
  seed: number,
  steps: number,
  options: CompareOptions = {},
): Promise<void> {
  let walk = randomWalk(seed, steps)
  let divergence = await compareWalk(make, reference, walk, options.every)
  if (divergence === undefined) return
  if (options.shrink !== false) {
    walk = await shrinkWalk(walk.slice(0, divergence.step + 1), async (shorter) => {
      return (await compareWalk(make, reference, shorter)) !== undefined
    })
    divergence = (await compareWalk(make, reference, walk)) ?? divergence
  }
  same(divergence.actual, divergence.expected, explain(divergence, seed, walk))
}

/** Takes both along one walk, step by step; answers where they part, if they do. */
export async function compareWalk(
  make: MakeHarness,
  reference: MakeHarness,
  walk: readonly WalkStep[],
  every = 1,
): Promise<Divergence | undefined> {
  const expecting = await Walker.begin(await reference())
  try {
    const walking = await Walker.begin(await make())
    try {
      return await walkTogether(walking, expecting, walk, every)
    } finally {
      await walking.end()
    }
  } finally {
    await expecting.end()
  }
}

async function walkTogether(
  walking: Walker,
  expecting: Walker,
  walk: readonly WalkStep[],
  every: number,
): Promise<Divergence | undefined> {
  const seen = new Set<string>()
  for (const [index, step] of walk.entries()) {
    // The reference says what a step means; both are then sent the same.
    const send = await meaning(step, expecting)
    const expectedReceipt = await send(expecting)
    const actualReceipt = await send(walking)
    for (const { id } of await expecting.jobs()) seen.add(id)
    const closely = (index + 1) % every === 0 || index === walk.length - 1
    const contradicted = closely ? await walking.contradictions() : []
    if (contradicted.length > 0) return { step: index, what: 'itself', expected: [], actual: contradicted }
    const look = (walker: Walker, receipt: Receipt | undefined): Promise<Readonly<Record<string, unknown>>> =>
      closely ? walker.look(receipt, [...seen]) : walker.glance(receipt, (index + 1) % GLANCE === 0)
    const expected = await look(expecting, expectedReceipt)
    const actual = await look(walking, actualReceipt)
    for (const what of Object.keys(expected)) {
      if (equal(actual[what], expected[what])) continue
      return { step: index, what, expected: expected[what], actual: actual[what] }
    }
  }
  return undefined
}

async function meaning(step: WalkStep, reference: Walker): Promise<(walker: Walker) => Promise<Receipt | undefined>> {
  switch (step.step) {
    case 'advance':
      return async (walker) => {
        await walker.harness.advance(step.minutes * MINUTE)
        return undefined
      }
    case 'replay':
      return (walker) => walker.drivers[step.writer].replay()
    case 'upkeep': {
      const parts = await upkeep(reference)
      return (walker) => walker.drivers[0].commit(parts)
    }
    case 'batch': {
      const [jobs, cells] = [await reference.jobs(), await reference.cells()]
      return (walker) => walker.drivers[step.writer].commit(resolve(step, { jobs, cells, began: walker.began }))
    }
  }
}

async function upkeep(reference: Walker): Promise<Parts> {
  const { store } = reference
  const { now, jobs } = await store.due({ queues: walkQueues, except: [], limit: 10 })
  const records = await store.get(ids(jobs))
  const details = await store.details({ jobs: ids(jobs) })
  return {
    groups: decideDue(
      records.map((job) => present(job, 'a job that is due is stored')),
      now,
      details.jobs.map(({ edges }) => edges),
    ),
  }
}

function explain({ what, step }: Divergence, seed: number, walk: readonly WalkStep[]): string {
  const steps = walk.map((taken) => JSON.stringify(taken)).join('\n')
  return `the stores part in "${what}" after step ${step + 1} of this walk (from seed ${seed}):\n${steps}`
}
