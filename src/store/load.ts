// store/load.ts: what one batch of a batcher holds, and how it is split where it cannot be sent as it is.
import type { Group } from './batch.js'
import { faultsIn } from './commit-errors.js'

/** The contents of one batch. */
export interface LoadOf<G, R, A> {
  readonly taken: readonly G[]
  readonly groups: readonly Group[]
  readonly renewals: readonly R[]
  readonly asks: readonly A[]
}

/** Splits a load into two that are sent one after the other; undefined where it cannot be split. */
export function halvesOf<G, R, A>({
  taken,
  groups,
  renewals,
  asks,
}: LoadOf<G, R, A>): readonly [LoadOf<G, R, A>, LoadOf<G, R, A>] | undefined {
  const rest = renewals.length + asks.length > 0
  if (groups.length === 0 || (groups.length === 1 && !rest)) return undefined
  const half = groups.length === 1 ? 1 : Math.ceil(groups.length / 2)
  return [
    { taken: taken.slice(0, half), groups: groups.slice(0, half), renewals: [], asks: [] },
    { taken: taken.slice(half), groups: groups.slice(half), renewals, asks },
  ]
}

/** Splits a load into what an error names as refused, and the others; undefined if it names nothing, or nothing else. */
export function withoutFaults<G, R, A>(
  load: LoadOf<G, R, A>,
  error: unknown,
): { readonly faulty: LoadOf<G, R, A>; readonly others: LoadOf<G, R, A> } | undefined {
  const faults = faultsIn(error)
  if (faults === undefined) return undefined
  const { taken, groups, renewals, asks } = load
  const of = (isFaulty: boolean): LoadOf<G, R, A> => ({
    taken: taken.filter((_, at) => faults.groups.has(at) === isFaulty),
    groups: groups.filter((_, at) => faults.groups.has(at) === isFaulty),
    renewals: isFaulty ? [] : renewals,
    asks: asks.filter((_, at) => faults.asks.has(at) === isFaulty),
  })
  const split = { faulty: of(true), others: of(false) }
  const count = ({ groups: some, asks: claims }: LoadOf<G, R, A>): number => some.length + claims.length
  return count(split.faulty) === 0 || count(split.others) + renewals.length === 0 ? undefined : split
}
