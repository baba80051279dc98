// queue/flows/flow-errors.ts: what a flow is refused with, and which of its jobs that is about.
import { MillraceError, isInstance } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import type { Verdict } from '../../store/store.js'
import type { Prepared } from '../add.js'
import { cycleAmong, describeCycle } from './cycles.js'

/** What is said of a job of a flow. */
interface FlowNode {
  readonly given: { readonly queueName: string }
  readonly parent: FlowNode | undefined
  /** Its place among the children of its parent. */
  readonly at: number
  readonly id: string
  readonly prepared: Prepared | undefined
}

/** What a flow is refused with, by the job over which it was. */
export function refusal(nodes: readonly FlowNode[], verdict: Verdict & { ok: false }, call: string): MillraceError {
  const { why, id, job } = verdict
  const waits =
    why === 'missing' ? nodes.find((each) => each.prepared!.insert.edges.some(({ on }) => on === id)) : undefined
  const node =
    waits ??
    nodes.find((each) => each.id === id) ??
    nodes.find((each) => job?.dedup !== undefined && each.prepared!.insert.job.dedup?.key === job.dedup.key) ??
    nodes.at(-1)!
  const details = { id, node: pathOf(node) }
  const where = `${call}: ${nameOf(node)}:`
  const whole = 'Nothing of the flow was added.'
  switch (why) {
    case 'duplicate':
      return new MillraceError('DUPLICATE_JOB', `${where} job ${id} has its id or its dedup key. ${whole}`, { details })
    case 'missing':
      return missing(nodes, node, id, where, whole)
    case 'full':
      return new MillraceError('QUEUE_FULL', `${where} ${fullness(node, job)} ${whole}`, { details })
    default:
      return new MillraceError('STORE_UNAVAILABLE', `${where} the store refused it (${why}). ${whole}`, { details })
  }
}

/** A job of a flow was to run after one that is not there, or not yet. */
function missing(nodes: readonly FlowNode[], node: FlowNode, id: string, where: string, whole: string): MillraceError {
  const details = { id, node: pathOf(node) }
  const cycle = cycleAmong(
    node.id,
    nodes.map(({ prepared }) => prepared!.insert),
  )
  if (cycle !== undefined) {
    const message = `${where} it would wait for ever: ${describeCycle(cycle)}. ${whole}`
    return new MillraceError('WAIT_CYCLE', message, { details: { ...details, cycle } })
  }
  const what = nodes.some((each) => each.id === id)
    ? `job ${id} of the same flow comes after it, and can only be waited for if it comes before.`
    : `there is no job ${id} for it to run after.`
  return new MillraceError('DEPENDENCY_MISSING', `${where} ${what} ${whole}`, { details })
}

/** Which bound there was no room under. */
function fullness({ given, prepared }: FlowNode, oldest: JobRecord | undefined): string {
  const queue = `queue '${given.queueName}'`
  if (oldest === undefined) return `${queue} is at the bound of its backlog.`
  return `group '${prepared!.insert.job.group}' of ${queue} is at the bound of its backlog, or the flow alone is more than that.`
}

/** Does it, and tells of which job an error speaks. */
export function about<T>(node: FlowNode, call: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    return refuse(node, call, error)
  }
}

/** Tells of which job an error speaks. */
export function refuse(node: FlowNode, call: string, error: unknown): never {
  if (!isInstance(error, MillraceError)) throw error
  throw new MillraceError(error.code, `${call}: ${nameOf(node)}: ${error.message}`, {
    details: { ...error.details, node: pathOf(node) },
    cause: error,
  })
}

/** What a job of a flow is called. */
export function nameOf(node: FlowNode): string {
  const { name, queueName } = (node.given ?? {}) as { readonly name?: unknown; readonly queueName?: unknown }
  const [what, where] = [
    typeof name === 'string' && `'${name}'`,
    typeof queueName === 'string' && `in queue '${queueName}'`,
  ]
  const said = [what, where].filter((part) => part !== false).join(' ')
  return said === '' ? pathOf(node) : `${pathOf(node)} (${said})`
}

/** Where a job stands in its tree: `children[0].children[2]`; the root has no better name. */
function pathOf(node: FlowNode): string {
  const path: string[] = []
  for (let each = node; each.parent !== undefined; each = each.parent) path.push(`children[${each.at}]`)
  if (path.length === 0) return 'the root'
  return path.length <= 20 ? path.toReversed().join('.') : `a job ${path.length} levels deep`
}
