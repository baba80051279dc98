// testing/script/acting.ts: jobs whose data says what their handler does.
import { UnrecoverableError, isMillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Job } from '../../queue/job.js'
import type { AddOptions } from '../../queue/add-options.js'
import type { BatchHandler } from '../../worker/batches/types.js'
import type { JobContext } from '../../worker/attempt/context.js'
import type { Handler } from '../../worker/handlers.js'
import type { History } from '../check/history.js'
import type { AnyHandlers } from '../world/observed.js'
import type { SimulatedProcess } from '../world/process.js'
import type { Act, ChildPlan, SimulationSettings } from './script.js'

/** What the data of a scripted job says. */
export interface Work {
  readonly n: number
  /** The dedup key it was meant to have. */
  readonly key?: string
  readonly window?: Millis
  /** It may have waited for others, and looks what they came to. */
  readonly waits?: true
  readonly runs: readonly (readonly Act[])[]
}

/** The number of all that was not added by a step: runs of schedules, children, continuations. */
export const OTHERS = 1_000_000

/** The signal that scripted jobs wait for. */
export const SIGNAL_NAME = 'go'

/** What a scripted job returns. */
export interface ScriptedResult {
  readonly n: number
  readonly run: number
  readonly fence: number
  /** The job that its chain goes on with. */
  readonly next?: string
}

/** The handlers of scripted jobs. `runs` counts how often each was run, over all processes. */
export function scripted(
  process: SimulatedProcess,
  history: History,
  runs: Map<string, number>,
  batch?: SimulationSettings['batch'],
): AnyHandlers {
  const run = scriptedOne(process, history, runs)
  const alone: Handler = (job, ctx) => run(job, ctx, ctx)
  if (batch === undefined) return alone
  const runBatch: BatchHandler = (jobs, ctx) => {
    history.count(`batch:${jobs.length === 1 ? 'one' : 'many'}`)
    // One that hangs for ever hangs the others with it: it is to be told to stop, unless it is alone.
    return ctx.each((job, own) => run(job, own, undefined, jobs.length > 1))
  }
  return { even: alone, odd: { runBatch, batch } }
}

/** What both a job's own context and one in a batch have. */
type Acting = Pick<JobContext, 'signal' | 'progress' | 'log'> & { snooze(duration: Millis): unknown }

function scriptedOne(process: SimulatedProcess, history: History, runs: Map<string, number>) {
  return (
    job: Job,
    ctx: Acting,
    alone: JobContext | undefined,
    polite = false,
  ): ScriptedResult | Promise<ScriptedResult> => {
    const work = job.data as Work
    const run = runs.get(job.id) ?? 0
    runs.set(job.id, run + 1)
    const acts = work.runs[run] ?? work.runs.at(-1) ?? []
    const result: ScriptedResult = { n: work.n, run, fence: job.fence }
    const looks = work.waits === true && alone !== undefined
    if (acts.length === 0 && !looks) return result
    const performance = async (): Promise<ScriptedResult> => {
      if (looks) await look(process, history, job, alone)
      const next = await perform(process, history, acts, job, ctx, alone, polite)
      return next === undefined ? result : { ...result, next }
    }
    return performance()
  }
}

/** Looks what those that a job waited for came to, and writes it down. */
async function look({ name }: SimulatedProcess, history: History, { id, fence }: Job, ctx: JobContext): Promise<void> {
  const ended = await ctx.dependencies().catch(() => undefined) // reads may be lost, and whoever works goes on
  if (ended === undefined) return
  history.count(`dependencies:${ended.length === 0 ? 'none' : 'some'}`)
  history.add({ kind: 'given', time: history.time, id, fence, ended })
  history.say(name, `sees for ${id}@${fence}: ${ended.map((each) => `${each.id} ${each.status}`).join(', ')}`)
}

/** Answers the job that its chain goes on with, if it does. */
async function perform(
  process: SimulatedProcess,
  history: History,
  acts: readonly Act[],
  job: Job,
  ctx: Acting,
  alone: JobContext | undefined,
  polite: boolean,
): Promise<string | undefined> {
  const { id } = job
  for (const each of acts) {
    if (ofOne.has(each.act) && alone === undefined) continue
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
        throw ctx.snooze(each.for)
      case 'step':
        await takeStep(history, job, alone!, each.name)
        break
      case 'nap':
        await alone!.sleep(each.name, each.for)
        break
      case 'await':
        await awaitSignal(history, job, alone!, each.for)
        break
      case 'hang':
        await (polite ? whenAborted(ctx.signal) : new Promise(() => {}))
        break
      case 'children': {
        const children = await Promise.all(each.jobs.map((plan, at) => addChild(alone!, id, plan, at)))
        const { onFailure, cancelSiblings } = each
        return alone!.waitFor(children, { onFailure, cancelSiblings })
      }
      case 'continue':
        return alone!.complete(async ({ continueWith }) => {
          const { name, options, data } = childOf(each.job)
          return (await continueWith(name, data, options)).id
        })
    }
  }
  return undefined
}

/** What a handler of batches has not. */
const ofOne: ReadonlySet<Act['act']> = new Set(['children', 'continue', 'step', 'nap', 'await'])

async function takeStep(history: History, { id, fence }: Job, ctx: JobContext, name: string): Promise<void> {
  const about = { kind: 'stepped', id, fence, name } as const
  const take = (): number => {
    history.add({ ...about, time: history.time })
    return fence
  }
  await ctx.step(name, take).then(
    (result) => history.add({ ...about, time: history.time, result: JSON.stringify(result) }),
    () => {}, // the lease was lost, or the read was
  )
}

async function awaitSignal(history: History, { id }: Job, ctx: JobContext, timeout: Millis): Promise<void> {
  try {
    const data = await ctx.waitForSignal<string>(SIGNAL_NAME, { timeout })
    history.count('signal:taken')
    history.add({ kind: 'signalled', time: history.time, id, data })
  } catch (error) {
    if (!isMillraceError(error, 'SIGNAL_TIMEOUT')) throw error
    history.count('signal:timeout')
  }
}

function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve())
  })
}

async function addChild(ctx: JobContext, parent: string, plan: ChildPlan, at: number): Promise<string> {
  const { name, data, options } = childOf(plan)
  return (await ctx.add(name, data, plan.ownId ? { ...options, id: `${parent}-${at}` } : options)).id
}

function childOf({ name, runs, ownId: _own, ...options }: ChildPlan): {
  readonly name: string
  readonly data: Work
  readonly options: AddOptions
} {
  return { name, data: { n: OTHERS, runs, ...(waitsIn(runs) && { waits: true }) }, options }
}

/** Whether a job waits for children of its own in one of its runs. */
export function waitsIn(runs: Work['runs']): boolean {
  return runs.flat().some(({ act }) => act === 'children')
}
