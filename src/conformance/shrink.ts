// conformance/shrink.ts: cuts a walk down to what is needed to fail.
import type { WalkStep } from './walk.js'

/** How many walks are tried at most. */
const TRIES = 400

/**
 * A smaller walk that still fails, found by leaving out steps, then parts of steps. `fails` tells whether a walk
 * fails; the walk given must.
 */
export async function shrinkWalk(
  walk: readonly WalkStep[],
  fails: (walk: readonly WalkStep[]) => Promise<boolean>,
  tries: number = TRIES,
): Promise<readonly WalkStep[]> {
  let left = tries
  const stillFails = async (candidate: readonly WalkStep[]): Promise<boolean> => left-- > 0 && (await fails(candidate))

  let smallest = await cutOut(walk, stillFails)
  for (let index = 0; index < smallest.length; index++) {
    const step = smallest[index]
    if (step?.step !== 'batch') continue
    const withBatch = (batch: WalkStep): readonly WalkStep[] => smallest.with(index, batch)
    let batch = step
    const groups = await cutOut(batch.groups, (fewer) => stillFails(withBatch({ ...batch, groups: fewer })))
    batch = { ...batch, groups }
    for (let place = 0; place < batch.groups.length; place++) {
      const whole = batch.groups[place] ?? []
      const replace = (acts: typeof whole) => ({ ...batch, groups: batch.groups.with(place, acts) })
      batch = replace(await cutOut(whole, (fewer) => stillFails(withBatch(replace(fewer)))))
    }
    batch = {
      ...batch,
      renewals: await cutOut(batch.renewals, (fewer) => stillFails(withBatch({ ...batch, renewals: fewer }))),
    }
    batch = { ...batch, asks: await cutOut(batch.asks, (fewer) => stillFails(withBatch({ ...batch, asks: fewer }))) }
    smallest = withBatch(batch)
  }
  return smallest
}

/** Leaves out ever smaller stretches of a list, as long as it still fails without them. */
async function cutOut<T>(
  list: readonly T[],
  fails: (shorter: readonly T[]) => Promise<boolean>,
): Promise<readonly T[]> {
  let kept = list
  for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let start = 0; start < kept.length;) {
      const shorter = kept.toSpliced(start, size)
      if (await fails(shorter)) kept = shorter
      else start += size
    }
  }
  return kept
}
