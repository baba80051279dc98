// queue/flows/flow.ts: trees of jobs, in which parents wait for their children; saved whole or not at all.
import type { Insert, NewEdge } from '../../job/change.js'
import { MillraceError } from '../../job/errors.js'
import type { FailurePolicy, JobRecord } from '../../job/job.js'
import { checkName, checkOwnName, refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { refuseInside } from '../../store/transaction-context.js'
import { connect } from '../../store/connection.js'
import { step, stepwise } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store, Verdict } from '../../store/store.js'
import { Adder, NO_OPTIONS } from '../add.js'
import type { Prepared } from '../add.js'
import type { InputOf, JobDefinition, JobDefinitions, NameOf } from '../define.js'
import { JobOperations } from '../operations/job-operations.js'
import { about, nameOf, refusal, refuse } from './flow-errors.js'
import { Job } from '../job.js'
import { oneOf } from '../add-options.js'
import type { AddOptions } from '../add-options.js'
import type { Queue } from '../queue.js'
import { withOverflow } from '../settings/overflow.js'
import { refuseLate, transactionIn } from '../transactions.js'
import type { InTransaction, TransactionArgument } from '../transactions.js'
import type { AnyJobs, Declaring, JobOf } from '../queue-types.js'

/** How a job of a flow is added. */
export interface FlowJobOptions extends Omit<AddOptions, 'repeat'> {
  /** Cancel its unfinished children, and theirs, before the failure of one of them fails or removes it. Default false. */
  readonly cancelSiblings?: boolean
}

/** What every job of a flow says, whatever its data. */
interface FlowPlace<Jobs extends JobDefinitions> {
  /** The queue it goes to. */
  readonly queueName: string
  /** As with `queue.add`. An id or a dedup key that is taken refuses the whole flow. Default: none. */
  readonly options?: FlowJobOptions
  /** What its failure means for its parent. Default: what the parent's `onChildFailure` says, or else `fail`. */
  readonly onFailure?: FailurePolicy
  /** The jobs it waits for. Default: none. */
  readonly children?: readonly FlowJob<Jobs>[] | readonly []
}

/** A job of a flow of one name, with its children. */
interface FlowJobWithData<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> extends FlowPlace<Jobs> {
  /** Its name, among the jobs declared. */
  readonly name: Name
  /** What `queue.add` takes for the name. */
  readonly data: InputOf<Jobs[Name]>
}

/** As that, where undefined is data. */
interface FlowJobWithoutData<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> extends FlowPlace<Jobs> {
  /** Its name, among the jobs declared. */
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

/** What the types of a flow's handles are made of: the names in a tree. */
interface FlowNames<Name extends string> {
  /** The name of a job. */
  readonly name: Name
  /** Those of its children. */
  readonly children?: readonly FlowNames<Name>[]
}

/**
 * Lets the compiler infer `Given` from an argument, and asks nothing of it: the argument is checked, and its mistakes are told,
 * by the type that this stands beside.
 */
type Seen<Given> = [Given] extends [never] ? Given : unknown

/** A flow that was added: its job, and those of its children in the order given. */
export type Flow<Jobs extends JobDefinitions = AnyJobs, Tree = FlowJob<Jobs>> = {
  /** The handle on the job. */
  readonly job: Tree extends { readonly name: infer Name extends NameOf<Jobs> } ? JobOf<Jobs, Name> : JobOf<Jobs>
  /** Its children. */
  readonly children: Tree extends { readonly children: infer Children extends readonly unknown[] }
    ? { readonly [Place in keyof Children]: Flow<Jobs, Children[Place]> }
    : readonly Flow<Jobs>[]
}

/** What a producer of flows needs of a queue. */
export type FlowQueue = Pick<Queue, 'name' | 'store' | 'jobs'>

/** The jobs that a queue declares. */
type JobsOf<Each> = Each extends { readonly jobs: infer Jobs } ? NonNullable<Jobs> : never

/** What some declarations say of a name. */
type Of<Jobs, Name> = Jobs extends unknown ? (Name extends keyof Jobs ? Jobs[Name] : never) : never

/** Declarations together; of a name that several have, what fits one of them: which, its queue decides. */
type Together<Jobs> = Readonly<{
  [Name in Jobs extends unknown ? NameOf<Jobs> : never]: Extract<Of<Jobs, Name>, JobDefinition>
}>

/** The jobs that flows are made of: those declared for the producer, and those of its queues. */
export type FlowJobs<Jobs extends JobDefinitions, Queues extends readonly FlowQueue[]> = Queues extends readonly []
  ? Jobs
  : string extends keyof Jobs
    ? Together<JobsOf<Queues[number]>>
    : string extends keyof Together<JobsOf<Queues[number]>>
      ? Jobs
      : Together<Jobs | JobsOf<Queues[number]>>

/** How a flow producer is made. */
export interface FlowProducerOptions<
  Jobs extends JobDefinitions = AnyJobs,
  S extends Store = Store,
  Queues extends readonly FlowQueue[] = readonly FlowQueue[],
> {
  /** Where its jobs live. */
  readonly store: S
  /** The jobs that flows are made of, of all queues, made by `defineJobs`. Default: any. */
  readonly jobs?: Jobs
  /** Queues whose own jobs, defaults and retention hold for what flows add to them. Default: none. */
  readonly queues?: Queues
  /** The most bytes that the data of one job may take as JSON. Default 1 MiB. */
  readonly maxDataBytes?: number
}

type AnyFlow = FlowJob

/** One job of a tree on its way into the store. */
interface Node {
  readonly given: AnyFlow
  readonly parent: Node | undefined
  /** Its place among the children of its parent. */
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

/** Adds flows. Making one costs nothing; it shares its writes with all queues on the store. */
export class FlowProducer<
  Jobs extends JobDefinitions = AnyJobs,
  S extends Store = Store,
  const Queues extends readonly FlowQueue[] = readonly [],
> {
  /** Where its jobs live. */
  readonly store: S
  readonly #desk: JobOperations
  readonly #jobs: Jobs | undefined
  readonly #adders = new Map<string, Adder>()
  #closed = false

  /** A producer of flows; `options.store` says where. */
  constructor(options: FlowProducerOptions<Jobs, S, Queues> & Declaring<Jobs>) {
    if (typeof options !== 'object' || options === null || typeof options.store?.commit !== 'function') {
      throw new MillraceError(
        'INVALID_OPTION',
        "new FlowProducer: give it a store, as in { store: sqlite('jobs.db') }.",
      )
    }
    refuseUnknown(options, ['store', 'jobs', 'queues', 'maxDataBytes'], 'new FlowProducer')
    const { maxDataBytes = 1_048_576 } = options
    const queues: readonly FlowQueue[] = options.queues ?? []
    if (!Number.isSafeInteger(maxDataBytes) || maxDataBytes < 1) {
      throw new MillraceError('INVALID_OPTION', 'new FlowProducer: maxDataBytes must be a whole number from 1 up.')
    }
    this.store = options.store
    this.#jobs = options.jobs
    this.#desk = new JobOperations(connect(options.store), options.jobs, maxDataBytes)
    for (const queue of queues) {
      if (queue.store !== options.store) {
        throw new MillraceError('INVALID_OPTION', `new FlowProducer: queue '${queue.name}' is on another store.`)
      }
      this.#adders.set(queue.name, (queue as Queue).adder)
    }
  }

  /**
   * Adds a job with its children, to any depth and across queues, in one commit: all of them are there, or none. Each parent
   * waits for its children. Resolves when they are durable.
   */
  add<Tree extends FlowNames<NameOf<FlowJobs<Jobs, Queues>>>>(
    tree: FlowJob<FlowJobs<Jobs, Queues>> & Seen<Tree>,
    ...options: TransactionArgument<S>
  ): Promise<Flow<FlowJobs<Jobs, Queues>, Tree>> {
    return stepwise(this.#addAll([tree as unknown as AnyFlow], options[0], 'FlowProducer.add')).then(
      ([flow]) => flow,
    ) as Promise<Flow<FlowJobs<Jobs, Queues>, Tree>>
  }

  /** Adds several flows, each landing by itself; if one of them is malformed, none is written. */
  addBulk<Trees extends readonly FlowNames<NameOf<FlowJobs<Jobs, Queues>>>[]>(
    trees: (readonly FlowJob<FlowJobs<Jobs, Queues>>[] | readonly []) & Seen<Trees>,
    ...options: TransactionArgument<S>
  ): Promise<{ readonly [Place in keyof Trees]: Flow<FlowJobs<Jobs, Queues>, Trees[Place]> }> {
    if (!Array.isArray(trees)) {
      return Promise.reject(new MillraceError('INVALID_OPTION', 'FlowProducer.addBulk takes an array of flows.'))
    }
    return stepwise(this.#addAll(trees as unknown as AnyFlow[], options[0], 'FlowProducer.addBulk')) as never
  }

  /** Waits for what was asked for to be durable, and refuses further calls. */
  async close(): Promise<void> {
    refuseInside(this.store, 'FlowProducer.close()')
    this.#closed = true
    await this.#desk.connection.main.flushed()
  }

  *#addAll(given: readonly AnyFlow[], options: InTransaction | undefined, call: string): Steps<Flow[]> {
    if (this.#closed) throw new MillraceError('QUEUE_CLOSED', 'This FlowProducer has been closed; make a new one.')
    const tx = transactionIn(options, call)
    const way = this.#desk.way(tx)
    const trees = given.map((root) => this.#tree(root, call))
    const late: { readonly node: Node; readonly prepared: Promise<Prepared> }[] = []
    for (const { nodes } of trees) {
      for (const node of nodes) {
        const prepared = about(node, call, () => this.#prepare(node))
        if (!(prepared instanceof Promise)) node.prepared = prepared
        else {
          refuseLate(this.store, tx, node.given.name)
          late.push({ node, prepared })
        }
      }
    }
    for (const { node, prepared } of late)
      node.prepared = yield* step(prepared.catch((error) => refuse(node, call, error)))
    refuseTwins(trees, call)
    const groups = trees.map(({ nodes }) => nodes.map((node): Insert => node.prepared!.insert))
    const verdicts = [...(yield* step(way.commitAll(groups)))]
    for (const [at, verdict] of verdicts.entries()) {
      if (!verdict.ok && verdict.why === 'full') verdicts[at] = yield* withOverflow(way, groups[at]!, verdict)
    }
    return trees.map((tree, at) => this.#flow(tree, verdicts[at]!, call))
  }

  /** The jobs of a tree, children before their parents. Without recursion: trees may be as deep as they like. */
  #tree(given: AnyFlow, call: string): Tree {
    const { runtime } = this.#desk.connection
    const nodes: Node[] = []
    const open = new Set<AnyFlow>()
    const enter = (each: AnyFlow, parent: Node | undefined, at: number): Node => {
      const node: Node = { given: each, parent, at, id: '', children: [], prepared: undefined }
      about(node, call, () => check(each, open))
      const made: Node = {
        ...node,
        id: each.options?.id === undefined ? runtime.id() : checkName(each.options.id, 'job id'),
      }
      parent?.children.push(made)
      open.add(each)
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
      open.delete(top.node.given)
      nodes.push(top.node)
      path.pop()
    }
    return { root, nodes }
  }

  #prepare(node: Node): Prepared | Promise<Prepared> {
    const { given, id, parent, children } = node
    const told: FlowJobOptions = given.options ?? NO_OPTIONS
    const { cancelSiblings: _all, ...options } = told
    if ('repeat' in options && options.repeat !== undefined) {
      const message = `FlowProducer: '${given.name}' cannot be repeated inside a flow. Schedule a job that adds the flow.`
      throw new MillraceError('INVALID_OPTION', message, { details: { node: given.name } })
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
      adder = new Adder(checkOwnName(queue, 'queue name'), this.#desk, this.#jobs, {}, undefined)
      this.#adders.set(queue, adder)
    }
    return adder
  }

  #flow({ root, nodes }: Tree, verdict: Verdict, call: string): Flow {
    if (!verdict.ok) throw refusal(nodes, verdict, call)
    const flows = new Map<Node, Flow>()
    for (const [at, node] of nodes.entries()) {
      const job = new Job(this.#desk, verdict.inserted[at] as JobRecord)
      flows.set(node, { job, children: node.children.map((child) => flows.get(child)!) })
    }
    return flows.get(root)!
  }
}

const policies: readonly FailurePolicy[] = ['fail', 'ignore', 'remove']

function check(given: AnyFlow, open: ReadonlySet<AnyFlow>): void {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new MillraceError(
      'INVALID_OPTION',
      'a job of a flow is written { name, queueName, data, options, children }.',
    )
  }
  if (open.has(given)) throw new MillraceError('INVALID_OPTION', 'it is among its own children.')
  checkPlace(given)
  refuseUnknown(given, ['name', 'queueName', 'data', 'options', 'onFailure', 'children'], 'a job of a flow')
  const { children, options, onFailure } = given
  if (children !== undefined && !Array.isArray(children)) {
    throw new MillraceError('INVALID_OPTION', 'children must be an array.')
  }
  if (onFailure !== undefined) oneOf(onFailure, policies, 'onFailure')
  if (options === undefined) return
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new MillraceError('INVALID_OPTION', 'options must be an object.')
  }
  const { cancelSiblings, onChildFailure } = options
  if (cancelSiblings !== undefined && typeof cancelSiblings !== 'boolean') {
    throw new MillraceError('INVALID_OPTION', 'cancelSiblings must be true or false.')
  }
  if (onChildFailure !== undefined) oneOf(onChildFailure, policies, 'onChildFailure')
}

/** Refuses a job that does not say what it is, or where it goes. */
function checkPlace(given: { readonly name?: unknown; readonly queueName?: unknown }): void {
  for (const [field, what] of [
    ['name', 'job name'],
    ['queueName', 'queue name'],
  ] as const) {
    const value = given[field]
    if (typeof value === 'string') continue
    const like = "as in { name: 'fetch', queueName: 'etl' }"
    let message = `it has no ${field}: give it one, ${like}.`
    if (field === 'queueName' && 'queue' in given)
      message = `it has a queue, and no queueName: write queueName, ${like}.`
    if (value !== undefined) message = `its ${field} must be a string, not ${quote(value)}: name it, ${like}.`
    throw new MillraceError('INVALID_NAME', message, { details: { what } })
  }
}

function edgeTo({ id, given }: Node, { options }: AnyFlow): NewEdge {
  const policy = given.onFailure ?? options?.onChildFailure ?? 'fail'
  return { on: id, policy: options?.cancelSiblings === true ? `${policy}-all` : policy }
}

/** Refuses ids and dedup keys that are in a tree twice. */
function refuseTwins(trees: readonly Tree[], call: string): void {
  for (const { nodes } of trees) {
    const taken = new Map<string, Node>()
    for (const node of nodes) {
      const { job } = node.prepared!.insert
      for (const mark of [`id ${job.id}`, ...(job.dedup === undefined ? [] : [`key ${job.dedup.key}`])]) {
        const other = taken.get(mark)
        if (other !== undefined) {
          const what = mark.startsWith('id ') ? `the id '${job.id}'` : 'the dedup key'
          refuse(
            node,
            call,
            new MillraceError('DUPLICATE_JOB', `it has ${what} of ${nameOf(other)}.`, { details: { id: job.id } }),
          )
        }
        taken.set(mark, node)
      }
    }
  }
}
