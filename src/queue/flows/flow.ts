// queue/flows/flow.ts: trees of jobs whose parents wait for their children; added whole or not at all.
import type { Insert, NewEdge } from '../../job/change.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import { failurePolicies } from '../../job/job.js'
import type { FailurePolicy, JobRecord } from '../../job/job.js'
import { checkName, checkOwnName, refuseUnknown } from '../../job/values/names.js'
import { invalid, isObject, oneOf } from '../../job/values/options.js'
import { refuseInside } from '../../store/transaction-context.js'
import { connect } from '../../store/connection.js'
import { step, runSteps } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store, Verdict } from '../../store/store.js'
import { Adder, NO_OPTIONS } from '../add.js'
import type { Prepared } from '../add.js'
import type { InputOf, JobDefinition, JobDefinitions, NameOf } from '../define.js'
import { JobOperations } from '../operations/job-operations.js'
import { withErrorContext, describeNode, flowRefused, rethrowWithContext } from './flow-errors.js'
import { Job } from '../job.js'
import type { AddOptions } from '../add-options.js'
import type { Queue } from '../queue.js'
import { withOverflow } from '../settings/overflow.js'
import { refuseAsyncSchema, transactionIn } from '../transactions.js'
import type { InTransaction, TransactionArgument } from '../transactions.js'
import { checkMaxDataBytes, checkStore } from '../queue-types.js'
import type { AnyJobs, Declaring, JobOf } from '../queue-types.js'

/** Options of a job of a flow. */
export interface FlowJobOptions extends Omit<AddOptions, 'repeat'> {
  /**
   * When the failure of a child fails or removes this job, cancel its unfinished children first, and their children.
   * Default false.
   */
  readonly cancelSiblings?: boolean
}

/** The properties of a job of a flow that do not depend on its data. */
interface FlowJobCommon<Jobs extends JobDefinitions> {
  /** The queue to add it to. */
  readonly queueName: string
  /** As with `queue.add`. A duplicate id or dedup key refuses the whole flow. Default: none. */
  readonly options?: FlowJobOptions
  /** What its failure means for its parent. Default: the parent's `onChildFailure`, or else `fail`. */
  readonly onFailure?: FailurePolicy
  /** The jobs it waits for. Default: none. */
  readonly children?: readonly FlowJob<Jobs>[] | readonly []
}

/** A job of one name in a flow, with its children. */
interface FlowJobWithData<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> extends FlowJobCommon<Jobs> {
  /** Its name, one of those declared. */
  readonly name: Name
  /** What `queue.add` takes for the name. */
  readonly data: InputOf<Jobs[Name]>
}

/** The same for a name whose data may be undefined. */
interface FlowJobWithoutData<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> extends FlowJobCommon<Jobs> {
  /** Its name, one of those declared. */
  readonly name: Name
  /** What `queue.add` takes for the name. Default: undefined. */
  readonly data?: InputOf<Jobs[Name]>
}

/** A job of a flow, with its children. */
export type FlowJob<Jobs extends JobDefinitions = AnyJobs> = {
  [Name in NameOf<Jobs>]: undefined extends InputOf<Jobs[Name]>
    ? FlowJobWithoutData<Jobs, Name>
    : FlowJobWithData<Jobs, Name>
}[NameOf<Jobs>]

/** The names in a tree, from which the types of the flow's handles follow. */
interface FlowNames<Name extends string> {
  /** The name of a job. */
  readonly name: Name
  /** The names of its children. */
  readonly children?: readonly FlowNames<Name>[]
}

/**
 * Lets the compiler infer `Given` from an argument without constraining it. The type beside it checks the argument and
 * reports its errors.
 */
type Inferred<Given> = [Given] extends [never] ? Given : unknown

/** A flow that was added: its job, and the flows of its children in the given order. */
export type Flow<Jobs extends JobDefinitions = AnyJobs, Tree = FlowJob<Jobs>> = {
  /** The handle of the job. */
  readonly job: Tree extends { readonly name: infer Name extends NameOf<Jobs> } ? JobOf<Jobs, Name> : JobOf<Jobs>
  /** Its children. */
  readonly children: Tree extends { readonly children: infer Children extends readonly unknown[] }
    ? { readonly [Index in keyof Children]: Flow<Jobs, Children[Index]> }
    : readonly Flow<Jobs>[]
}

/** What a flow producer uses of a queue. */
export type FlowQueue = Pick<Queue, 'name' | 'store' | 'jobs'>

/** The jobs that a queue declares. */
type JobsOf<Each> = Each extends { readonly jobs: infer Jobs } ? NonNullable<Jobs> : never

/** What these declarations have for a name. */
type DefinitionsOf<Jobs, Name> = Jobs extends unknown ? (Name extends keyof Jobs ? Jobs[Name] : never) : never

/** All these declarations together; for a name that several have, what fits one of them: the queue decides which. */
type MergedJobs<Jobs> = Readonly<{
  [Name in Jobs extends unknown ? NameOf<Jobs> : never]: Extract<DefinitionsOf<Jobs, Name>, JobDefinition>
}>

/** The jobs that flows consist of: those declared for the producer, and those of its queues. */
export type FlowJobs<Jobs extends JobDefinitions, Queues extends readonly FlowQueue[]> = Queues extends readonly []
  ? Jobs
  : string extends keyof Jobs
    ? MergedJobs<JobsOf<Queues[number]>>
    : string extends keyof MergedJobs<JobsOf<Queues[number]>>
      ? Jobs
      : MergedJobs<Jobs | JobsOf<Queues[number]>>

/** Options of a flow producer. */
export interface FlowProducerOptions<
  Jobs extends JobDefinitions = AnyJobs,
  S extends Store = Store,
  Queues extends readonly FlowQueue[] = readonly FlowQueue[],
> {
  /** The store that holds its jobs. */
  readonly store: S
  /** The jobs that flows consist of, in all queues, made by `defineJobs`. Default: any. */
  readonly jobs?: Jobs
  /** Queues whose own jobs, defaults and retention apply to the jobs that flows add to them. Default: none. */
  readonly queues?: Queues
  /** Maximum size of the data of one job as JSON, in bytes. Default 1 MiB. */
  readonly maxDataBytes?: number
}

type AnyFlow = FlowJob

/** One job of a tree before it is inserted. */
interface Node {
  readonly given: AnyFlow
  readonly parent: Node | undefined
  /** Its index among the children of its parent. */
  readonly at: number
  readonly id: string
  readonly children: Node[]
  prepared: Prepared | undefined
}

interface Tree {
  readonly root: Node
  /** Children before their parents. */
  readonly nodes: readonly Node[]
}

/** Adds flows. Cheap to create; it shares write batches with all queues on the store. */
export class FlowProducer<
  Jobs extends JobDefinitions = AnyJobs,
  S extends Store = Store,
  const Queues extends readonly FlowQueue[] = readonly [],
> {
  /** The store that holds its jobs. */
  readonly store: S
  readonly #operations: JobOperations
  readonly #jobs: Jobs | undefined
  readonly #adders = new Map<string, Adder>()
  #closed = false

  /** A flow producer on `options.store`. */
  constructor(options: FlowProducerOptions<Jobs, S, Queues> & Declaring<Jobs>) {
    checkStore(options, 'new FlowProducer')
    refuseUnknown(options, ['store', 'jobs', 'queues', 'maxDataBytes'], 'new FlowProducer')
    const queues: readonly FlowQueue[] = options.queues ?? []
    const maxDataBytes = checkMaxDataBytes(options.maxDataBytes, 'new FlowProducer')
    this.store = options.store
    this.#jobs = options.jobs
    this.#operations = new JobOperations(connect(options.store), options.jobs, maxDataBytes)
    for (const queue of queues) {
      if (queue.store !== options.store) throw invalid(`new FlowProducer: queue '${queue.name}' is on another store.`)
      this.#adders.set(queue.name, (queue as Queue).adder)
    }
  }

  /**
   * Adds a job with its children, to any depth and across queues, in one commit: all of them are added, or none. Each
   * parent waits for its children. Resolves when they are durable.
   */
  add<Tree extends FlowNames<NameOf<FlowJobs<Jobs, Queues>>>>(
    tree: FlowJob<FlowJobs<Jobs, Queues>> & Inferred<Tree>,
    ...options: TransactionArgument<S>
  ): Promise<Flow<FlowJobs<Jobs, Queues>, Tree>> {
    return runSteps(this.#addAll([tree as unknown as AnyFlow], options[0], 'FlowProducer.add')).then(
      ([flow]) => flow,
    ) as Promise<Flow<FlowJobs<Jobs, Queues>, Tree>>
  }

  /** Adds several flows. Each is committed by itself; if one of them is invalid, none is written. */
  addBulk<Trees extends readonly FlowNames<NameOf<FlowJobs<Jobs, Queues>>>[]>(
    trees: (readonly FlowJob<FlowJobs<Jobs, Queues>>[] | readonly []) & Inferred<Trees>,
    ...options: TransactionArgument<S>
  ): Promise<{ readonly [Index in keyof Trees]: Flow<FlowJobs<Jobs, Queues>, Trees[Index]> }> {
    if (!Array.isArray(trees)) {
      return Promise.reject(invalid('FlowProducer.addBulk takes an array of flows.'))
    }
    return runSteps(this.#addAll(trees as unknown as AnyFlow[], options[0], 'FlowProducer.addBulk')) as never
  }

  /** Waits until pending calls are durable, and refuses further calls. */
  async close(): Promise<void> {
    refuseInside(this.store, 'FlowProducer.close()')
    this.#closed = true
    await this.#operations.connection.main.flushed()
  }

  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  *#addAll(given: readonly AnyFlow[], options: InTransaction | undefined, call: string): Steps<Flow[]> {
    if (this.#closed) throw new MillraceError('QUEUE_CLOSED', 'This FlowProducer has been closed; make a new one.')
    const tx = transactionIn(options, call)
    const session = this.#operations.session(tx)
    const trees = given.map((root) => this.#tree(root, call))
    const pending: { readonly node: Node; readonly prepared: Promise<Prepared> }[] = []
    for (const { nodes } of trees) {
      for (const node of nodes) {
        const prepared = withErrorContext(node, call, () => this.#prepare(node))
        if (!(prepared instanceof Promise)) node.prepared = prepared
        else {
          refuseAsyncSchema(this.store, tx, node.given.name)
          pending.push({ node, prepared })
        }
      }
    }
    for (const { node, prepared } of pending)
      node.prepared = yield* step(prepared.catch((error) => rethrowWithContext(node, call, error)))
    refuseDuplicates(trees, call)
    const groups = trees.map(({ nodes }) => nodes.map((node): Insert => node.prepared!.insert))
    const verdicts = [...(yield* step(session.commitAll(groups)))]
    for (const [at, verdict] of verdicts.entries()) {
      if (!verdict.ok && verdict.why === 'full') verdicts[at] = yield* withOverflow(session, groups[at]!, verdict)
    }
    return trees.map((tree, at) => this.#flow(tree, verdicts[at]!, call))
  }

  /** The jobs of a tree, children before their parents. Without recursion, because trees may have any depth. */
  #tree(given: AnyFlow, call: string): Tree {
    const { runtime } = this.#operations.connection
    const nodes: Node[] = []
    const ancestors = new Set<AnyFlow>()
    const enter = (each: AnyFlow, parent: Node | undefined, at: number): Node => {
      const node: Node = { given: each, parent, at, id: '', children: [], prepared: undefined }
      withErrorContext(node, call, () => checkFlowJob(each, ancestors))
      const made: Node = {
        ...node,
        id: each.options?.id === undefined ? runtime.id() : checkName(each.options.id, 'job id'),
      }
      parent?.children.push(made)
      ancestors.add(each)
      return made
    }
    const root = enter(given, undefined, 0)
    const path: { readonly node: Node; next: number }[] = [{ node: root, next: 0 }]
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const child = top.node.given.children?.[top.next]
      if (top.next < (top.node.given.children?.length ?? 0)) {
        path.push({ node: enter(child!, top.node, top.next++), next: 0 })
        continue
      }
      ancestors.delete(top.node.given)
      nodes.push(top.node)
      path.pop()
    }
    return { root, nodes }
  }

  #prepare(node: Node): Prepared | Promise<Prepared> {
    const { given, id, parent, children } = node
    const flowOptions: FlowJobOptions = given.options ?? NO_OPTIONS
    const { cancelSiblings: _cancelSiblings, ...options } = flowOptions
    if ('repeat' in options && options.repeat !== undefined) {
      const message = `FlowProducer: '${given.name}' cannot be repeated inside a flow. Schedule a job that adds the flow.`
      throw invalid(message, { node: given.name })
    }
    return this.#adder(given.queueName).prepare(
      given.name,
      given.data,
      given.options === undefined ? NO_OPTIONS : options,
      {
        id,
        ...(parent !== undefined && { parentId: parent.id }),
        ...(children.length > 0 && {
          children: children.map((child) => edgeTo(child, given)),
          names: children.map((child) => child.given.name),
        }),
      },
    )
  }

  #adder(queue: string): Adder {
    let adder = this.#adders.get(queue)
    if (adder === undefined) {
      adder = new Adder(checkOwnName(queue, 'queue name'), this.#operations, this.#jobs, {}, undefined)
      this.#adders.set(queue, adder)
    }
    return adder
  }

  #flow({ root, nodes }: Tree, verdict: Verdict, call: string): Flow {
    if (!verdict.ok) throw flowRefused(nodes, verdict, call)
    const flows = new Map<Node, Flow>()
    for (const [at, node] of nodes.entries()) {
      const job = new Job(this.#operations, verdict.inserted[at] as JobRecord)
      flows.set(node, { job, children: node.children.map((child) => flows.get(child)!) })
    }
    return flows.get(root)!
  }
}

function checkFlowJob(given: AnyFlow, ancestors: ReadonlySet<AnyFlow>): void {
  if (!isObject(given)) {
    throw invalid('a job of a flow is written { name, queueName, data, options, children }.')
  }
  if (ancestors.has(given)) throw invalid('it is among its own children.')
  checkNames(given)
  refuseUnknown(given, ['name', 'queueName', 'data', 'options', 'onFailure', 'children'], 'a job of a flow')
  const { children, options, onFailure } = given
  if (children !== undefined && !Array.isArray(children)) throw invalid('children must be an array.')
  if (onFailure !== undefined) oneOf(onFailure, failurePolicies, 'onFailure')
  if (options === undefined) return
  if (!isObject(options)) throw invalid('options must be an object.')
  const { cancelSiblings, onChildFailure } = options
  if (cancelSiblings !== undefined && typeof cancelSiblings !== 'boolean') {
    throw invalid('cancelSiblings must be true or false.')
  }
  if (onChildFailure !== undefined) oneOf(onChildFailure, failurePolicies, 'onChildFailure')
}

/** Throws if the job's name or queue is missing. */
function checkNames(given: { readonly name?: unknown; readonly queueName?: unknown }): void {
  for (const [field, what] of [
    ['name', 'job name'],
    ['queueName', 'queue name'],
  ] as const) {
    const value = given[field]
    if (typeof value === 'string') continue
    const example = "as in { name: 'fetch', queueName: 'etl' }"
    let message = `it has no ${field}: give it one, ${example}.`
    if (field === 'queueName' && 'queue' in given)
      message = `it has a queue, and no queueName: write queueName, ${example}.`
    if (value !== undefined) message = `its ${field} must be a string, not ${quote(value)}: name it, ${example}.`
    throw new MillraceError('INVALID_NAME', message, { details: { what } })
  }
}

function edgeTo({ id, given }: Node, { options }: AnyFlow): NewEdge {
  const policy = given.onFailure ?? options?.onChildFailure ?? failurePolicies[0]
  return { on: id, policy: options?.cancelSiblings === true ? `${policy}-all` : policy }
}

/** Throws if an id or dedup key occurs twice in a tree. */
function refuseDuplicates(trees: readonly Tree[], call: string): void {
  for (const { nodes } of trees) {
    const taken = new Map<string, Node>()
    for (const node of nodes) {
      const { job } = node.prepared!.insert
      for (const mark of [`id ${job.id}`, ...(job.dedup === undefined ? [] : [`key ${job.dedup.key}`])]) {
        const other = taken.get(mark)
        if (other !== undefined) {
          const what = mark.startsWith('id ') ? `the id '${job.id}'` : 'the dedup key'
          rethrowWithContext(
            node,
            call,
            new MillraceError('DUPLICATE_JOB', `it has ${what} of ${describeNode(other)}.`, {
              details: { id: job.id },
            }),
          )
        }
        taken.set(mark, node)
      }
    }
  }
}
