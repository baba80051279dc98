// upkeep/siblings.ts: cancels what nobody needs any more, before its parent is decided upon.
import { isFinished, jobStates } from '../job/job.js'
import type { Edge, JobRecord } from '../job/job.js'
import { cancel, isDenied, unneeded } from '../job/lifecycle.js'
import type { Connection } from '../store/connection.js'

/** Jobs cancelled for one parent at a time: others are due as well. */
const PORTION = 200

const unfinished = jobStates.filter((state) => !isFinished(state))

/**
 * Cancels some of the unfinished jobs behind edges whose job is to fail with all of them, with their own children before
 * them; answers how many. The parent stays due until there are none, whoever dies in between.
 */
export async function cancelUnneeded({ store, main }: Connection, edges: readonly Edge[]): Promise<number> {
  const chains = unneeded(edges).slice(0, PORTION)
  if (chains.length === 0) return 0
  const found: JobRecord[] = []
  for (const [at, head] of (await store.get(chains)).entries()) {
    if (head !== undefined && !isFinished(head.state)) found.push(head)
    else found.push(...(await store.find({ chain: chains[at]!, states: unfinished, limit: PORTION })).items)
  }
  // Each is followed by its children; from the end on, all of them come before it.
  for (let at = 0; at < found.length && found.length < 2 * PORTION; at++) {
    const { id, state } = found[at]!
    if (state === 'waiting-children')
      found.push(...(await store.find({ parent: id, states: unfinished, limit: PORTION })).items)
  }
  // Parents whose children did not all fit are left for the next time.
  const parents = new Set(found.slice(PORTION).map(({ parentId }) => parentId))
  const many = found.length > 2 * PORTION
  const groups = found
    .toReversed()
    .filter(({ id }) => !many || !parents.has(id))
    .map((job) => cancel(job))
    .filter((group) => !isDenied(group))
  const verdicts = await Promise.all(
    groups.map((group) => main.commit(group as Exclude<typeof group, { denied: string }>)),
  )
  return verdicts.filter(({ ok }) => ok).length
}
