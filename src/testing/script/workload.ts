// testing/script/workload.ts: performs the operations of a script and records their results.
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { FlowProducer } from '../../queue/flows/flow.js'
import type { Flow, FlowJob } from '../../queue/flows/flow.js'
import type { Job } from '../../queue/job.js'
import { Operation as BulkOperation } from '../../queue/operations/bulk/operation.js'
import type { AddOptions } from '../../queue/add-options.js'
import { inMillis, UNNUMBERED, SIGNAL_NAME, waitsIn } from './acting.js'
import type { Work } from './acting.js'
import { jobsOfFlow } from './script.js'
import type { FlowPlan, JobPlan, Operation, OperationPlan } from './script.js'
import type { CallResult } from '../check/simulated-history.js'
import type { Actor, Stage } from '../world/stage.js'

/** Performs operations of scripts, and records the calls and their results. */
export class Operator {
  readonly #stage: Stage
  /** Ids of jobs by number, as far as the calls that added them have returned. */
  readonly #ids = new Map<number, string>()
  /** Bulk operations by number, as far as the calls that began them have returned. */
  readonly #operations = new Map<number, BulkOperation>()
  #calls = 0

  constructor(stage: Stage) {
    this.#stage = stage
  }

  /** Performs one step, if its process is alive. */
  perform(step: Operation): void {
    const actor = this.#stage.living(step.process)
    if (actor === undefined) return
    actor.process.enter('deferred', () => this.#perform(actor, step))
  }

  #perform(actor: Actor, step: Operation): void {
    switch (step.do) {
      case 'add':
        return void this.#add(actor, step.job, step.wait)
      case 'addBulk':
        return void this.#addBulk(actor, step.jobs)
      case 'flow':
        return void this.#addFlow(actor, step.flow)
      case 'schedule': {
        const { key, queue, runs, ...plan } = step.plan
        const data: Work = { n: UNNUMBERED, runs }
        this.#stage.history.count(`catchUp:${plan.catchUp}`)
        this.#stage.history.count(`overlap:${plan.overlap}`)
        const to = actor.queues.get(queue)!
        return void this.#call(actor, step.do, undefined, undefined, () => to.schedule(key, { ...plan, data }))
      }
      case 'unschedule': {
        const queue = actor.queues.get(step.queue)!
        return void this.#call(actor, step.do, undefined, undefined, () => queue.unschedule(step.key))
      }
      case 'trigger': {
        const queue = actor.queues.get(step.queue)!
        return void this.#call(actor, step.do, undefined, undefined, () => queue.schedule(step.key).trigger())
      }
      case 'backfill': {
        const { back, overlap } = step
        const schedule = actor.queues.get(step.queue)!.schedule(step.key)
        const from = this.#stage.now - back
        return void this.#call(actor, step.do, undefined, undefined, () => schedule.backfill({ from, overlap }))
      }
      case 'hold': {
        const queue = actor.queues.get(step.queue)!
        const { of, for: lasts } = step
        if (lasts === undefined) return void this.#call(actor, 'unhold', undefined, undefined, () => queue.unhold(of))
        return void this.#call(actor, step.do, undefined, undefined, () => queue.hold(lasts, of))
      }
      case 'operate':
        return void this.#operate(actor, step.plan)
      case 'pauseOperation':
      case 'resumeOperation':
      case 'cancelOperation':
        return void this.#changeOperation(actor, step.do, step.operation)
      case 'pauseSchedule':
      case 'resumeSchedule': {
        const schedule = actor.queues.get(step.queue)!.schedule(step.key)
        const call = (): Promise<boolean> => (step.do === 'pauseSchedule' ? schedule.pause() : schedule.resume())
        return void this.#call(actor, step.do, undefined, undefined, call)
      }
      case 'pause':
      case 'resume': {
        const queue = actor.queues.get(step.queue)!
        return void this.#call(actor, step.do, undefined, undefined, () => queue[step.do](step.name))
      }
      case 'limit': {
        const queue = actor.queues.get(step.queue)!
        return void this.#call(actor, step.do, undefined, undefined, () => queue.limit(step.limits))
      }
      case 'cancelAll':
      case 'retryAll':
      case 'retryFailed':
      case 'promoteAll': {
        const queue = actor.queues.get(step.queue)!
        const odd = { name: 'odd' }
        const operations = {
          cancelAll: () => queue.cancel(odd),
          retryAll: () => queue.retry(odd),
          retryFailed: () => queue.retry({ state: 'failed' }),
          promoteAll: () => queue.promote(odd),
        }
        return void this.#call(actor, step.do, undefined, undefined, operations[step.do])
      }
      case 'update': {
        const { priority, delay } = step
        const changes = { ...(priority !== undefined && { priority }), ...(delay !== undefined && { delay }) }
        return void this.#on(actor, step.do, step.job, (job) => job.update(changes))
      }
      case 'signal': {
        const data = `${step.process} at ${step.at}`
        return void this.#on(actor, step.do, step.job, (job) => job.signal(SIGNAL_NAME, data))
      }
      default:
        return void this.#on(actor, step.do, step.job, (job) => job[step.do]())
    }
  }

  async #add(actor: Actor, plan: JobPlan, wait: Millis | undefined): Promise<void> {
    const queue = actor.queues.get(plan.queue)!
    const job = await this.#call(actor, 'add', undefined, plan.n, () =>
      queue.add(plan.name, workOf(plan), this.#options(plan)),
    )
    if (job === undefined) return
    this.#ids.set(plan.n, job.id)
    if (wait !== undefined) await this.#call(actor, 'result', job.id, plan.n, () => job.result({ timeout: wait }))
  }

  async #addBulk(actor: Actor, plans: readonly JobPlan[]): Promise<void> {
    const queue = actor.queues.get(plans[0]!.queue)!
    const items = plans.map((plan) => ({ name: plan.name, data: workOf(plan), options: this.#options(plan) }))
    const jobs = await this.#call(actor, 'addBulk', undefined, undefined, () => queue.addBulk(items))
    jobs?.forEach((job, at) => this.#ids.set(plans[at]!.n, job.id))
  }

  async #addFlow(actor: Actor, plan: FlowPlan): Promise<void> {
    const queues = [...actor.queues.values()]
    const producer = new FlowProducer({ store: queues[0]!.store, queues })
    const plans = jobsOfFlow(plan)
    const jobs = await this.#call(actor, 'flow', undefined, plan.job.n, async () =>
      jobsOf(await producer.add(this.#flow(plan))),
    )
    jobs?.forEach((job, at) => this.#ids.set(plans[at]!.n, job.id))
  }

  async #operate(actor: Actor, { o, queue, action, where, rate, wait }: OperationPlan): Promise<void> {
    const to = actor.queues.get(queue)!
    const { history } = this.#stage
    history.count(`operate:${action}`)
    if (rate !== undefined) history.count('operate:rate')
    const selected = Object.keys(where).length === 0 ? ({ all: true } as const) : { where }
    const common = { ...selected, ...(rate !== undefined && { rate }), reason: 'as scripted', by: actor.process.name }
    const request =
      action === 'update' ? { do: action, changes: { priority: o }, ...common } : { do: action, ...common }
    const operation = await this.#call(actor, 'operate', undefined, undefined, () => to.operate(request))
    if (operation === undefined) return
    this.#operations.set(o, operation)
    if (wait) await this.#call(actor, 'operation.result', operation.id, undefined, () => operation.result())
  }

  async #changeOperation(
    actor: Actor,
    call: 'pauseOperation' | 'resumeOperation' | 'cancelOperation',
    o: number,
  ): Promise<void> {
    const known = this.#operations.get(o)
    if (known === undefined) return
    await this.#call(actor, call, known.id, undefined, async () => {
      // Read by this process, whose faults are its own.
      const operation = await actor.queues.get(known.queue)!.operation(known.id)
      if (operation === undefined) throw new MillraceError('OPERATION_NOT_FOUND', `There is no operation ${known.id}.`)
      if (call === 'cancelOperation') return operation.cancel()
      return call === 'pauseOperation' ? operation.pause() : operation.resume()
    })
  }

  #flow({ job, onFailure, cancelSiblings, children }: FlowPlan): FlowJob {
    const work = workOf(job)
    if (cancelSiblings) this.#stage.history.count('option:cancelSiblings')
    return {
      name: job.name,
      queueName: job.queue,
      data: children.length === 0 ? work : { ...work, waits: true },
      options: { ...this.#options(job), ...(cancelSiblings && { cancelSiblings }) },
      ...(onFailure !== undefined && { onFailure }),
      children: children.map((child) => this.#flow(child)),
    }
  }

  async #on(actor: Actor, call: string, n: number, work: (job: Job) => Promise<boolean>): Promise<void> {
    const id = this.#ids.get(n)
    if (id === undefined) return
    const queues = [...actor.queues.values()]
    await this.#call(actor, call, id, n, async () => {
      for (const queue of queues) {
        const job = await queue.get(id)
        if (job !== undefined) return work(job)
      }
      throw new MillraceError('JOB_NOT_FOUND', `There is no job ${id}.`)
    })
  }

  async #call<T>(
    { process }: Actor,
    call: string,
    id: string | undefined,
    n: number | undefined,
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    const { history, timeline } = this.#stage
    history.count(`call:${call}`)
    const number = this.#calls++
    history.add({ kind: 'called', time: timeline.time, process: process.name, call, number })
    const about = n === undefined ? '' : ` ${n}`
    history.writeTrace(process.name, `calls ${call}${about}`)
    const returned = (result: CallResult, text: string): void => {
      history.add({ kind: 'returned', time: timeline.time, process: process.name, call, number, id, n, result })
      history.writeTrace(process.name, `${call}${about} returns: ${text}`)
    }
    try {
      const value = await work()
      returned({ ok: true, value }, textOf(value))
      return value
    } catch (error) {
      const code = (error as { code?: string }).code ?? 'ERROR'
      returned({ ok: false, code }, code)
      return undefined
    }
  }

  #options(plan: JobPlan): AddOptions {
    const { n, ownId, after = [], queue: _queue, name: _name, runs: _runs, ...options } = plan
    const known = after.flatMap(({ job, onFailure }) => {
      const id = this.#ids.get(job)
      return id === undefined ? [] : [{ job: id, onFailure }]
    })
    if (known.length > 0) this.#stage.history.count('option:after')
    for (const name of Object.keys(options)) this.#stage.history.count(`option:${name}`)
    const { removeOnComplete, removeOnFail, ...rest } = options
    return {
      ...rest,
      ...inMillis({ removeOnComplete, removeOnFail }),
      ...(ownId && { id: `job-${n}` }),
      ...(known.length > 0 && { after: known }),
    }
  }
}

/** The jobs of a flow, children before their parents. */
function jobsOf({ job, children }: Flow): readonly Job[] {
  return [...children.flatMap(jobsOf), job]
}

function workOf({ n, dedup, runs, after }: JobPlan): Work {
  return {
    n,
    runs,
    ...((after !== undefined || waitsIn(runs)) && { waits: true }),
    ...(dedup !== undefined && { key: dedup.key }),
    ...(dedup?.window !== undefined && { window: dedup.window }),
  }
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return `${value.length} jobs`
  if (value instanceof BulkOperation) return `${value.id}, ${value.state}`
  if (typeof value === 'object' && value !== null && 'duplicate' in value) {
    const { id, duplicate } = value as Job
    return duplicate ? `${id}, a duplicate` : id
  }
  return JSON.stringify(value) ?? 'nothing'
}
