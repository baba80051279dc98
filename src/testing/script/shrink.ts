// testing/script/shrink.ts: cuts a script down to what is needed to fail.
import type { Script, Step } from './script.js'

/** How many scripts are tried at most. */
const TRIES = 600

/**
 * A smaller script that still fails, found by leaving out steps, then faults, then parts of jobs. `fails` tells whether
 * a script fails; the one given must.
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

/** Takes options and acts out of the jobs that are left. */
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

/** Leaves out ever smaller stretches of a list, as long as it still fails without them. */
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
