// job/dependencies.ts: the rules of a job whose dependency failed or was cancelled, by the policies of its edges.
import { move } from './change.js'
import type { Change } from './change.js'
import { withFingerprint } from './errors/fingerprint.js'
import type { Edge, EdgePolicy, ErrorInfo, FailurePolicy, JobHeader } from './job.js'
import { end, isContinuation, removeAndRelease } from './moves.js'

/** Decides on a job with broken dependencies; `edges` are all of its edges. */
export function dependencyBroke(job: JobHeader, edges: readonly Edge[]): Change[] {
  const broken = edges.filter((edge) => edge.state === 'broken')
  // Cancelling the unneeded chains breaks their own edges, and this is decided again with the last of them.
  if (broken.length === 0 || chainsToCancel(edges).length > 0) return []
  if (broken.some((edge) => onFailure(edge.policy) === 'remove')) {
    if (!isContinuation(job)) return removeAndRelease(job)
    // Removed together with its chain, which would otherwise seem to have ended well without it.
    return end(job, 'cancelled', { deleteIn: 0 }, { closesBroken: true })
  }
  const fatal = broken.find((edge) => onFailure(edge.policy) === 'fail')
  if (fatal === undefined) return [move(job, 'waiting-children', { closesBroken: true })]
  const error: ErrorInfo = {
    name: 'MillraceError',
    code: 'DEPENDENCY_FAILED',
    message: `Job ${fatal.chain}, which this one waits for, failed or was cancelled.`,
  }
  return end(job, 'failed', { error: withFingerprint(error) }, { closesBroken: true })
}

/** What to do when the dependency fails. */
function onFailure(policy: EdgePolicy): FailurePolicy {
  return (goesWithAll(policy) ? policy.slice(0, -'-all'.length) : policy) as FailurePolicy
}

/** Whether a job continues without a dependency that failed or was cancelled. */
export function ignoresFailure(policy: EdgePolicy): boolean {
  return onFailure(policy) === 'ignore'
}

function goesWithAll(policy: EdgePolicy): boolean {
  return policy.endsWith('-all')
}

/**
 * The chains to cancel before deciding on a job that fails, or is removed, together with everything behind its `-all`
 * edges.
 */
export function chainsToCancel(edges: readonly Edge[]): readonly string[] {
  const ends = edges.some(
    ({ state, policy }) => state === 'broken' && goesWithAll(policy) && onFailure(policy) !== 'ignore',
  )
  return ends
    ? edges.filter(({ state, policy }) => state === 'open' && goesWithAll(policy)).map(({ chain }) => chain)
    : []
}
