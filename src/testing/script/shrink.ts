// testing/script/shrink.ts: shrinks a failing script to a smaller one that still fails.
import type { Script, Step } from './script.js'

/** The most scripts that are tried. */
const TRIES = 600

/**
 * Finds a smaller script that still fails, by removing faults, then steps, then parts of jobs. `fails` returns whether a
 * script fails; the given one must.
 */
export async function shrinkScript(
  script: Script,
  fails: (script: Script) => Promise<boolean>,
  tries: number = TRIES,
): Promise<Script> {
  let left = tries
  let best = script
  const attempt = async (candidate: Script): Promise<boolean> => {
    if (left-- <= 0 || !(await fails(candidate))) return false
    best = candidate
    return true
  }
  for (let size = -1; size !== sizeOf(best);) {
    size = sizeOf(best)
    if (!(await attempt({ ...best, faults: [] }))) {
      await cutOut(best.faults, (faults) => attempt({ ...best, faults }))
    }
    await cutOut(best.steps, (steps) => attempt({ ...best, steps }))
  }
  await simplify(best, attempt)
  return best
}

function sizeOf({ steps, faults }: Script): number {
  return steps.length + faults.length
}

/** Removes options and acts from the jobs that are left. */
async function simplify(script: Script, attempt: (script: Script) => Promise<boolean>): Promise<void> {
  let current = script
  for (let at = 0; at < current.steps.length; at++) {
    for (const simpler of simplerSteps(current.steps[at]!)) {
      const candidate = { ...current, steps: current.steps.with(at, simpler(current.steps[at]!)) }
      if (JSON.stringify(candidate.steps[at]) === JSON.stringify(current.steps[at])) continue
      if (await attempt(candidate)) current = candidate
    }
  }
}

const optional = [
  'ownId',
  'priority',
  'delay',
  'expires',
  'attempts',
  'lifo',
  'timeout',
  'removeOnComplete',
  'removeOnFail',
  'dedup',
  'after',
] as const

function simplerSteps(step: Step): ((step: Step) => Step)[] {
  if (step.do === 'addBulk') {
    return step.jobs.map(
      (job) => (from) =>
        from.do === 'addBulk' && from.jobs.length > 1
          ? { ...from, jobs: from.jobs.filter((each) => each.n !== job.n) }
          : from,
    )
  }
  if (step.do === 'flow') {
    return step.flow.children.map(({ job }) => (from) => {
      if (from.do !== 'flow') return from
      return { ...from, flow: { ...from.flow, children: from.flow.children.filter((each) => each.job.n !== job.n) } }
    })
  }
  if (step.do !== 'add') return []
  return [
    (from) => ({ ...from, wait: undefined }) as Step,
    ...optional.map((name) => (from: Step): Step => {
      if (from.do !== 'add') return from
      const { [name]: _left, ...job } = from.job
      return { ...from, job }
    }),
    ...step.job.runs.map(
      (_, run) =>
        (from: Step): Step =>
          from.do === 'add' ? { ...from, job: { ...from.job, runs: from.job.runs.with(run, []) } } : from,
    ),
  ]
}

/** Removes ever smaller slices of a list, as long as it still fails without them. */
async function cutOut<T>(list: readonly T[], fails: (shorter: readonly T[]) => Promise<boolean>): Promise<void> {
  let kept = list
  for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let start = 0; start < kept.length;) {
      const shorter = kept.toSpliced(start, size)
      if (await fails(shorter)) kept = shorter
      else start += size
    }
  }
}
