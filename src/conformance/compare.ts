// conformance/compare.ts: runs the same walk on two stores and reports where they differ.
import { equal, present, same } from './check.js'
import { ids } from './driver.js'
import type { Parts } from './driver.js'
import type { MakeHarness } from './harness.js'
import { Walker } from './snapshot.js'
import { decideDue, MINUTE, resolve } from './resolve.js'
import { shrinkWalk } from './shrink.js'
import { randomWalk, walkQueues } from './walk.js'
import type { WalkStep } from './walk.js'
import type { Receipt } from '../store/store.js'

/** How often all jobs are compared, in steps, where not everything is compared. */
const COMPARE_JOBS_EVERY = 5

/** Where two stores differ. */
export interface Divergence {
  /** The step after which they differ, from 0. */
  readonly step: number
  /** What differs: `receipt`, `get`, `due`, `events`, …; `itself`: the store contradicts itself. */
  readonly what: string
  /** What the reference returned. */
  readonly expected: unknown
  /** What the store returned. */
  readonly actual: unknown
}

/** Options of a comparison. */
export interface CompareOptions {
  /** Whether to shrink a walk on which two stores differ. Default true. */
  readonly shrink?: boolean
  /**
   * After how many steps everything that can be read is compared. Receipts are compared after every step, and all jobs after
   * every fifth. Default 1.
   */
  readonly every?: number
}

/**
 * Runs a random walk on a store and on the reference. Rejects if they differ, with the smallest walk found on which they do;
 * `compareWalk` runs it again.
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

/** Runs one walk on both stores, step by step. Returns where they differ; undefined: they do not. */
export async function compareWalk(
  make: MakeHarness,
  reference: MakeHarness,
  walk: readonly WalkStep[],
  every = 1,
): Promise<Divergence | undefined> {
  const expectedWalker = await Walker.begin(await reference())
  try {
    const actualWalker = await Walker.begin(await make())
    try {
      return await walkBoth(actualWalker, expectedWalker, walk, every)
    } finally {
      await actualWalker.end()
    }
  } finally {
    await expectedWalker.end()
  }
}

async function walkBoth(
  actualWalker: Walker,
  expectedWalker: Walker,
  walk: readonly WalkStep[],
  every: number,
): Promise<Divergence | undefined> {
  const seen = new Set<string>()
  for (const [index, step] of walk.entries()) {
    // A step is resolved on the reference, and both stores receive the same batch.
    const send = await interpret(step, expectedWalker)
    const expectedReceipt = await send(expectedWalker)
    const actualReceipt = await send(actualWalker)
    for (const { id } of await expectedWalker.jobs()) seen.add(id)
    const complete = (index + 1) % every === 0 || index === walk.length - 1
    const contradictions = complete ? await actualWalker.contradictions() : []
    if (contradictions.length > 0) return { step: index, what: 'itself', expected: [], actual: contradictions }
    const look = (walker: Walker, receipt: Receipt | undefined): Promise<Readonly<Record<string, unknown>>> =>
      complete ? walker.look(receipt, [...seen]) : walker.readBrief(receipt, (index + 1) % COMPARE_JOBS_EVERY === 0)
    const expected = await look(expectedWalker, expectedReceipt)
    const actual = await look(actualWalker, actualReceipt)
    for (const what of Object.keys(expected)) {
      if (equal(actual[what], expected[what])) continue
      return { step: index, what, expected: expected[what], actual: actual[what] }
    }
  }
  return undefined
}

async function interpret(step: WalkStep, reference: Walker): Promise<(walker: Walker) => Promise<Receipt | undefined>> {
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

/** What upkeep sends for what is due. */
export async function upkeep(reference: Walker): Promise<Parts> {
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
  return `the stores differ in "${what}" after step ${step + 1} of this walk (from seed ${seed}):\n${steps}`
}
