// queue/flows/flow-errors.ts: the errors of a flow, each naming the job of the flow that caused it.
import { MillraceError, isInstance } from '../../job/errors/errors.js'
import type { JobRecord } from '../../job/job.js'
import type { Verdict } from '../../store/store.js'
import type { Prepared } from '../add.js'
import { cycleAmong, describeCycle } from './cycles.js'

/** What the errors use of a job of a flow. */
interface FlowNode {
  readonly given: { readonly queueName: string }
  readonly parent: FlowNode | undefined
  /** Its index among the children of its parent. */
  readonly at: number
  readonly id: string
  readonly prepared: Prepared | undefined
}

/** The error for a refused flow, with the job that caused the refusal. `nodes` are in the order of the flow's group. */
export function flowRefused(nodes: readonly FlowNode[], verdict: Verdict & { ok: false }, call: string): MillraceError {
  const { change, why, id, job } = verdict
  const node = nodes[change]!
  const details = { id, node: pathOf(node) }
  const where = `${call}: ${describeNode(node)}:`
  const nothingAdded = 'Nothing of the flow was added.'
  switch (why) {
    case 'duplicate':
      return new MillraceError('DUPLICATE_JOB', `${where} job ${id} has its id or its dedup key. ${nothingAdded}`, {
        details,
      })
    case 'missing':
      return dependencyMissing(nodes, node, id, where, nothingAdded)
    case 'full':
      return new MillraceError('QUEUE_FULL', `${where} ${describeFull(node, job)} ${nothingAdded}`, { details })
    default:
      return new MillraceError('STORE_UNAVAILABLE', `${where} the store refused it (${why}). ${nothingAdded}`, {
        details,
      })
  }
}

/** The error for a dependency that does not exist, or not yet. */
function dependencyMissing(
  nodes: readonly FlowNode[],
  node: FlowNode,
  id: string,
  where: string,
  nothingAdded: string,
): MillraceError {
  const details = { id, node: pathOf(node) }
  const cycle = cycleAmong(
    node.id,
    nodes.map(({ prepared }) => prepared!.insert),
  )
  if (cycle !== undefined) {
    const message = `${where} it would wait for ever: ${describeCycle(cycle)}. ${nothingAdded}`
    return new MillraceError('WAIT_CYCLE', message, { details: { ...details, cycle } })
  }
  const what = nodes.some((each) => each.id === id)
    ? `job ${id} of the same flow comes after it, and can only be waited for if it comes before.`
    : `there is no job ${id} for it to run after.`
  return new MillraceError('DEPENDENCY_MISSING', `${where} ${what} ${nothingAdded}`, { details })
}

/** Describes the limit that was reached. */
function describeFull({ given, prepared }: FlowNode, oldest: JobRecord | undefined): string {
  const queue = `queue '${given.queueName}'`
  if (oldest === undefined) return `${queue} is at the bound of its backlog.`
  return `group '${prepared!.insert.job.group}' of ${queue} is at the bound of its backlog, or the flow alone is more than that.`
}

/** Runs work; adds the job of the flow to an error. */
export function withErrorContext<T>(node: FlowNode, call: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    return rethrowWithContext(node, call, error)
  }
}

/** Throws the error again, with the job of the flow that caused it. */
export function rethrowWithContext(node: FlowNode, call: string, error: unknown): never {
  if (!isInstance(error, MillraceError)) throw error
  throw new MillraceError(error.code, `${call}: ${describeNode(node)}: ${error.message}`, {
    details: { ...error.details, node: pathOf(node) },
    cause: error,
  })
}

/** A job of a flow, for messages. */
export function describeNode(node: FlowNode): string {
  const { name, queueName } = (node.given ?? {}) as { readonly name?: unknown; readonly queueName?: unknown }
  const [what, where] = [
    typeof name === 'string' && `'${name}'`,
    typeof queueName === 'string' && `in queue '${queueName}'`,
  ]
  const description = [what, where].filter((part) => part !== false).join(' ')
  return description === '' ? pathOf(node) : `${pathOf(node)} (${description})`
}

/** The path of a job in its tree: `children[0].children[2]`, or `the root`. */
function pathOf(node: FlowNode): string {
  const path: string[] = []
  for (let each = node; each.parent !== undefined; each = each.parent) path.push(`children[${each.at}]`)
  if (path.length === 0) return 'the root'
  return path.length <= 20 ? path.toReversed().join('.') : `a job ${path.length} levels deep`
}
