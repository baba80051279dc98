// server/routes/flows.ts: adding a tree of jobs, across queues, in one commit.
import { isMillraceError } from '../../job/errors/errors.js'
import type { ErrorCode } from '../../job/errors/errors.js'
import { FlowProducer } from '../../queue/flows/flow.js'
import type { Flow, FlowJob } from '../../queue/flows/flow.js'
import type { Queue } from '../../queue/queue.js'
import type { ServerParts } from '../parts.js'
import { inScope } from '../principal.js'
import type { Principal } from '../principal.js'
import { forbidden } from '../problem.js'
import { addOptions, addedSchema, addedView, anyJson, checkAfter, withoutStrangers } from '../producing/add-request.js'
import type { AddedView } from '../producing/add-request.js'
import { idempotencyKey, idempotentId, mismatch } from '../producing/idempotency.js'
import { route } from '../route.js'
import type { Route } from '../route.js'
import { list, name, object, oneOf, optional, options, refuse } from '../shape.js'
import { addErrors } from './producing.js'

/** The most jobs of a flow that is added over HTTP. */
const MAX_JOBS = 1_000

const flowErrors: readonly ErrorCode[] = [...addErrors, 'WAIT_CYCLE']

/** One job of a flow; its children are read as the same. */
const flowJob = object({
  name: name('report'),
  queueName: name('mail'),
  data: anyJson,
  options: optional(
    options('As those of POST /v1/queues/{queue}/jobs, with `onChildFailure` and `cancelSiblings`.', {}),
  ),
  onFailure: optional(oneOf('fail', 'ignore', 'remove')),
  children: optional(list(options('The same again: a job that this one waits for.'), { max: MAX_JOBS })),
})

/** A flow that was added, or that stands. */
interface FlowView {
  readonly job: AddedView
  readonly children: readonly FlowView[]
}

/** What reading a tree needs, and how many jobs it has so far. */
interface Reading {
  readonly server: ServerParts
  readonly principal: Principal
  readonly key: string | undefined
  count: number
  readonly queues: Map<string, Queue>
}

/** The routes of flows. */
export const flowRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/v1/flows',
    access: ['produce', 'work'],
    summary: 'Adds a job with its children, to any depth and across queues: all of them, or none.',
    description: 'Up to 1,000 jobs. With an `Idempotency-Key`, the same flow sent again answers the one that stands.',
    body: flowJob,
    changes: true,
    answers: {
      201: {
        description: 'The flow was added.',
        schema: {
          type: 'object',
          properties: { job: addedSchema, children: { type: 'array', items: { type: 'object' } } },
          required: ['job', 'children'],
        },
      },
      200: { description: 'It stands already.', schema: { type: 'object' } },
    },
    errors: flowErrors,
    async handle({ server, principal, body, request }) {
      const reading: Reading = { server, principal, key: idempotencyKey(request), count: 0, queues: new Map() }
      const tree = await readTree(reading, body, 'body')
      const producer = new FlowProducer({ store: server.store, queues: [...reading.queues.values()] })
      try {
        const flow = (await producer.add(tree)) as unknown as Flow
        return { status: 201, body: viewOf(flow) }
      } catch (error) {
        const standing = reading.key === undefined ? undefined : await standingFlow(reading, tree, error)
        if (standing !== undefined) return { status: 200, body: standing }
        throw withoutStrangers(error, principal)
      }
    },
  }),
]

/** Reads a job of a tree and those below it. Bodies are never deep enough for the recursion to matter. */
async function readTree(reading: Reading, given: unknown, at: string): Promise<FlowJob> {
  const { server, principal, key, queues } = reading
  const read = flowJob.read(given, at)
  if (++reading.count > MAX_JOBS) throw refuse('body', `a flow of at most ${MAX_JOBS} jobs`, reading.count)
  const { queueName } = read
  if (!inScope(principal, queueName)) throw forbidden(`The roles of '${principal.name}' do not hold for that queue.`)
  const queue = server.queues.get(queueName)
  queues.set(queueName, queue)
  const own = addOptions(read.options, principal, queue, `${at}.options`)
  await checkAfter(server, principal, own.after)
  if (key !== undefined && own.id !== undefined) {
    throw refuse(`${at}.options.id`, 'left out with an Idempotency-Key, which is the id', own.id)
  }
  const id = key === undefined ? undefined : idempotentId(principal, 'millrace:flow', key, reading.count - 1)
  const children: FlowJob[] = []
  for (const [index, child] of (read.children ?? []).entries()) {
    children.push(await readTree(reading, child, `${at}.children[${index}]`))
  }
  return {
    name: read.name,
    queueName,
    data: read.data,
    ...((read.options !== undefined || id !== undefined) && { options: { ...own, ...(id !== undefined && { id }) } }),
    ...(read.onFailure !== undefined && { onFailure: read.onFailure }),
    ...(children.length > 0 && { children }),
  }
}

function viewOf({ job, children }: Flow): FlowView {
  return { job: addedView(job), children: children.map(viewOf) }
}

/**
 * The flow that stands under the key, if that is why this one was refused. Jobs of it that have been removed since are
 * shown as `removed`.
 */
async function standingFlow({ server, queues }: Reading, tree: FlowJob, error: unknown): Promise<FlowView | undefined> {
  if (!isMillraceError(error, 'DUPLICATE_JOB') && !isMillraceError(error, 'DUPLICATE_ID')) return undefined
  let found = 0
  const view = async (node: FlowJob): Promise<FlowView> => {
    const id = node.options!.id!
    const [record, children] = await Promise.all([
      server.connection.reads.get(id),
      Promise.all((node.children ?? []).map(view)),
    ])
    if (record !== undefined) {
      found++
      const { insert } = await queues.get(node.queueName)!.adder.prepare(node.name, node.data, {})
      const same = record.queue === node.queueName && record.name === node.name && record.data === insert.job.data
      if (!same) throw mismatch(id)
    }
    const { queueName: queue, name: called } = node
    return { job: { id, queue, name: called, state: record?.state ?? 'removed', duplicate: true }, children }
  }
  const standing = await view(tree)
  return found === 0 ? undefined : standing // none: what was taken is the key of a dedup option
}
