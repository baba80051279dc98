// conformance/shrink.ts: shrinks a failing walk to a smaller one that still fails.
import type { WalkStep } from './walk.js'

/** The most walks that are tried. */
const TRIES = 400

/**
 * Finds a smaller walk that still fails, by removing steps, then parts of steps. `fails` returns whether a walk fails; the
 * given one must.
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
    for (let groupIndex = 0; groupIndex < batch.groups.length; groupIndex++) {
      const group = batch.groups[groupIndex] ?? []
      const replace = (acts: typeof group) => ({ ...batch, groups: batch.groups.with(groupIndex, acts) })
      batch = replace(await cutOut(group, (fewer) => stillFails(withBatch(replace(fewer)))))
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

/** Removes ever smaller slices of a list, as long as it still fails without them. */
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
