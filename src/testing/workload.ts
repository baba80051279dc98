// testing/workload.ts: jobs whose data says what their handler does, and the operations that scripts are made of.
import { MillraceError, UnrecoverableError } from '../job/errors.js'
import type { Millis } from '../job/job.js'
import type { Job } from '../queue/job.js'
import type { AddOptions } from '../queue/options.js'
import type { JobContext } from '../worker/context.js'
import type { Handler } from '../worker/options.js'
import type { History } from './history.js'
import type { SimulatedProcess } from './process.js'
import type { Act, JobPlan, Operation } from './script.js'
import type { Actor, Stage } from './stage.js'

/** What the data of a scripted job says. */
export interface Work {
  readonly n: number
  /** The dedup key it was meant to have. */
  readonly key?: string
  readonly window?: Millis
  readonly runs: readonly (readonly Act[])[]
}

/** What a scripted job returns. */
export interface ScriptedResult {
  readonly n: number
  readonly run: number
  readonly fence: number
}

/** The handler of scripted jobs. `runs` counts how often each was run, over all processes. */
export function scripted(process: SimulatedProcess, history: History, runs: Map<string, number>): Handler {
  return (job, ctx) => {
    const work = job.data as Work
    const run = runs.get(job.id) ?? 0
    runs.set(job.id, run + 1)
    const acts = work.runs[run] ?? work.runs.at(-1) ?? []
    const result: ScriptedResult = { n: work.n, run, fence: job.fence }
    return acts.length === 0 ? result : perform(process, history, acts, job.id, ctx).then(() => result)
  }
}

async function perform(
  process: SimulatedProcess,
  history: History,
  acts: readonly Act[],
  id: string,
  ctx: JobContext,
): Promise<void> {
  for (const each of acts) {
    history.count(`act:${each.act}`)
    switch (each.act) {
      case 'sleep':
        await (each.polite ? process.sleep(each.for, ctx.signal) : process.sleep(each.for))
        break
      case 'block':
        history.say(process.name, `blocks for ${each.for} ms`)
        await process.block(each.for)
        break
      case 'log':
        await ctx.log('a line').then(
          () => history.add({ kind: 'logged', time: history.time, id }),
          () => {},
        )
        break
      case 'progress':
        await ctx.progress(50).catch(() => {})
        break
      case 'throw':
        throw new Error('as scripted')
      case 'fatal':
        throw new UnrecoverableError('as scripted, for good')
      case 'snooze':
        ctx.snooze(each.for)
        break
      case 'hang':
        await new Promise(() => {})
    }
  }
}

/** Carries out what scripts ask for, and writes down what came of it. */
export class Operator {
  readonly #stage: Stage
  /** Ids by number, as far as callers were told. */
  readonly #ids = new Map<number, string>()
  #calls = 0

  constructor(stage: Stage) {
    this.#stage = stage
  }

  /** Does one step, if its process lives. */
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
      case 'pause':
      case 'resume': {
        const queue = actor.queues.get(step.queue)!
        return void this.#call(actor, step.do, undefined, undefined, () => queue[step.do](step.name))
      }
      case 'cancelAll':
      case 'retryAll':
      case 'promoteAll': {
        const queue = actor.queues.get(step.queue)!
        const verb = step.do.slice(0, -3) as 'cancel' | 'retry' | 'promote'
        return void this.#call(actor, step.do, undefined, undefined, () => queue[verb]({ name: 'odd' }))
      }
      case 'update': {
        const { priority, delay } = step
        const changes = { ...(priority !== undefined && { priority }), ...(delay !== undefined && { delay }) }
        return void this.#on(actor, step.do, step.job, (job) => job.update(changes))
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
    history.say(process.name, `calls ${call}${about}`)
    const told = (said: { ok: true; value: unknown } | { ok: false; code: string }, text: string): void => {
      history.add({ kind: 'answer', time: timeline.time, process: process.name, call, number, id, n, said })
      history.say(process.name, `hears of ${call}${about}: ${text}`)
    }
    try {
      const value = await work()
      told({ ok: true, value }, textOf(value))
      return value
    } catch (error) {
      const code = (error as { code?: string }).code ?? 'ERROR'
      told({ ok: false, code }, code)
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
    return { ...options, ...(ownId && { id: `job-${n}` }), ...(known.length > 0 && { after: known }) }
  }
}

function workOf({ n, dedup, runs }: JobPlan): Work {
  return {
    n,
    runs,
    ...(dedup !== undefined && { key: dedup.key }),
    ...(dedup?.window !== undefined && { window: dedup.window }),
  }
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return `${value.length} jobs`
  if (typeof value === 'object' && value !== null && 'duplicate' in value) {
    const { id, duplicate } = value as Job
    return duplicate ? `${id}, a duplicate` : id
  }
  return JSON.stringify(value) ?? 'nothing'
}
