// stores/postgres/fast-complete.ts: encodes batches that only complete jobs for their lease holders, for `complete`.
import type { Move, MoveFields } from '../../job/change.js'
import type { Batch, Group } from '../../store/store.js'
import type { Value } from './drivers/driver.js'
import { UNIT } from './rows.js'

/** Ids, fences (one number if all are equal) and results, as `complete` takes them; undefined if a fast path cannot. */
export function completionsIn({ groups }: Batch): readonly Value[] | undefined {
  const moves: Move[] = []
  const ids = new Set<string>()
  for (const group of groups) {
    const move = plainCompletion(group)
    if (move === undefined || ids.has(move.id)) return undefined
    moves.push(move)
    ids.add(move.id)
  }
  const [first] = moves
  if (first === undefined) return undefined
  const fences = moves.every(({ fence }) => fence === first.fence)
    ? first.fence
    : moves.map(({ fence }) => fence).join()
  const hasResults = moves.some(({ set }) => set.result !== undefined)
  const results = hasResults ? moves.map(({ set }) => set.result ?? '').join(UNIT) : null
  return [moves.map(({ id }) => id).join(UNIT), fences, results]
}

/** The move of a group that completes a job, which is a chain by itself, and sets no more than its result. */
function plainCompletion(group: Group): Move | undefined {
  const [move, release] = group
  if (group.length !== 2 || move?.kind !== 'move' || release?.kind !== 'release') return undefined
  if (!move.held || move.to !== 'completed' || move.why !== undefined || move.reaps || move.closesBroken)
    return undefined
  if (release.chain !== move.id || release.outcome !== move.to || move.waitsFor !== undefined) return undefined
  for (const field in move.set)
    if (field !== 'result' && move.set[field as keyof MoveFields] !== undefined) return undefined
  return move
}
