// testing/script/generate-acts.ts: generates what the handlers of a script do, and the jobs that they add.
import type { Millis } from '../../job/job.js'
import type { Random } from '../world/random.js'
import type { Act, ChildPlan } from './script.js'

/** The names of scripted jobs. */
export const jobNames = ['even', 'odd'] as const

/** The names of their durable steps and sleeps. */
const stepNames = ['one', 'two'] as const

interface RunsOptions {
  /** Whether a run may hang: only a timeout ends it then. */
  readonly mayHang: boolean
  /** How deep children and continuations may nest. */
  readonly links: number
}

/** What a handler does, run by run. */
export function generateRuns(
  random: Random,
  lease: Millis,
  { mayHang, links }: RunsOptions,
): readonly (readonly Act[])[] {
  const runs = Array.from({ length: random.between(1, 4) }, () => [
    ...generateActs(random, lease).filter((each) => each.act !== 'hang' || mayHang),
    ...generateLinks(random, lease, links),
  ])
  // Later runs repeat the last one, so it must end by itself.
  const last = runs
    .at(-1)!
    .filter(({ act }) => act !== 'hang' && act !== 'snooze' && act !== 'block' && act !== 'children')
  return [...runs.slice(0, -1), last]
}

/** What some runs end with: a wait for children, or a continuation of the chain. */
function generateLinks(random: Random, lease: Millis, links: number): readonly Act[] {
  if (links === 0) return []
  const child = (): ChildPlan => generateChild(random, lease, links - 1)
  if (random.chance(0.1)) {
    return [
      {
        act: 'children',
        jobs: Array.from({ length: random.between(1, 2) }, child),
        onFailure: random.pick(['fail', 'ignore', 'ignore', 'remove'] as const),
        cancelSiblings: random.chance(0.3),
      },
    ]
  }
  return random.chance(0.1) ? [{ act: 'continue', job: child() }] : []
}

function generateChild(random: Random, lease: Millis, links: number): ChildPlan {
  return {
    name: random.pick(jobNames),
    runs: generateRuns(random, lease, { mayHang: false, links }),
    attempts: random.between(1, 4),
    backoff: random.between(1, lease),
    ...(random.chance(0.2) && { delay: random.between(1, lease) }),
    ...(random.chance(0.15) && { removeOnComplete: random.pick([0, lease]) }),
    ...(random.chance(0.3) && { ownId: true }),
  }
}

/** What a handler does in one run, without children and continuations. */
export function generateActs(random: Random, lease: Millis): readonly Act[] {
  const acts: Act[] = []
  for (let left = random.between(0, 3); left > 0; left--) {
    const what = random.weigh({
      sleep: 12,
      log: 2,
      progress: 2,
      throw: 3,
      fatal: 0.5,
      snooze: 1.5,
      block: 0.7,
      hang: 1,
      step: 3,
      nap: 1,
      await: 2,
    })
    if (what === 'sleep') {
      const long = random.chance(0.2)
      acts.push({ act: what, for: random.between(0, long ? 3 * lease : 200), polite: random.chance(0.5) })
    } else if (what === 'block') acts.push({ act: what, for: random.between(lease / 4, 2 * lease) })
    else if (what === 'snooze') acts.push({ act: what, for: random.between(1, lease) })
    else if (what === 'step') acts.push({ act: what, name: random.pick(stepNames) })
    else if (what === 'nap') acts.push({ act: what, name: random.pick(stepNames), for: random.between(1, lease) })
    else if (what === 'await') acts.push({ act: what, for: random.between(1, 5 * lease) })
    else acts.push({ act: what })
  }
  return acts
}
