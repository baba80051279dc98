// testing/script/acting.ts: the handlers of scripted jobs, which do what the data of their job lists.
import { UnrecoverableError, isMillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import type { Job } from '../../queue/job.js'
import type { AddOptions } from '../../queue/add-options.js'
import type { BatchHandler } from '../../worker/batches/handler.js'
import type { JobContext } from '../../worker/attempt/context.js'
import type { Handler } from '../../worker/handlers.js'
import type { History } from '../check/simulated-history.js'
import type { AnyHandlers } from '../world/observed.js'
import type { SimulatedProcess } from '../world/process.js'
import type { Act, ChildPlan, SimulationSettings } from './script.js'

/** The data of a scripted job. */
export interface Work {
  readonly n: number
  /** Its intended dedup key, which the checker compares with the actual one. */
  readonly key?: string
  readonly window?: Millis
  /** It may have dependencies, and its handler reads their results. */
  readonly waits?: true
  readonly runs: readonly (readonly Act[])[]
}

/** The number of every job that no step adds: runs of schedules, children, continuations. */
export const UNNUMBERED = 1_000_000

/** The signal that scripted jobs wait for. */
export const SIGNAL_NAME = 'go'

/** What a scripted job returns. */
export interface ScriptedResult {
  readonly n: number
  readonly run: number
  readonly fence: number
  /** The next job of its chain. */
  readonly next?: string
}

/** Creates the handlers of scripted jobs. `runs` counts the runs of each job, over all processes. */
export function scripted(
  process: SimulatedProcess,
  history: History,
  runs: Map<string, number>,
  batch?: SimulationSettings['batch'],
): AnyHandlers {
  const run = scriptedRun(process, history, runs)
  const single: Handler = (job, ctx) => run(job, ctx, ctx)
  if (batch === undefined) return single
  const runBatch: BatchHandler = (jobs, ctx) => {
    history.count(`batch:${jobs.length === 1 ? 'one' : 'many'}`)
    // A job that hangs blocks the others of its batch, so it stops when it is aborted, unless it is alone.
    return ctx.each((job, own) => run(job, own, undefined, jobs.length > 1))
  }
  return { even: single, odd: { runBatch, batch } }
}

/** What the context of a single job and that of a job in a batch have in common. */
type ScriptedContext = Pick<JobContext, 'signal' | 'progress' | 'log'> & { snooze(duration: Millis): unknown }

function scriptedRun(process: SimulatedProcess, history: History, runs: Map<string, number>) {
  return (
    job: Job,
    ctx: ScriptedContext,
    single: JobContext | undefined,
    polite = false,
  ): ScriptedResult | Promise<ScriptedResult> => {
    const work = job.data as Work
    const run = runs.get(job.id) ?? 0
    runs.set(job.id, run + 1)
    const acts = work.runs[run] ?? work.runs.at(-1) ?? []
    const result: ScriptedResult = { n: work.n, run, fence: job.fence }
    const reads = work.waits === true && single !== undefined
    if (acts.length === 0 && !reads) return result
    const performAll = async (): Promise<ScriptedResult> => {
      if (reads) await readDependencies(process, history, job, single)
      const next = await perform(process, history, acts, job, ctx, single, polite)
      return next === undefined ? result : { ...result, next }
    }
    return performAll()
  }
}

/** Reads the results of a job's dependencies and records them. */
async function readDependencies(
  { name }: SimulatedProcess,
  history: History,
  { id, fence }: Job,
  ctx: JobContext,
): Promise<void> {
  const ended = await ctx.dependencies().catch(() => undefined) // a read may be lost; the handler continues without it
  if (ended === undefined) return
  history.count(`dependencies:${ended.length === 0 ? 'none' : 'some'}`)
  history.add({ kind: 'dependencies', time: history.time, id, fence, ended })
  history.writeTrace(
    name,
    `reads dependencies of ${id}@${fence}: ${ended.map((each) => `${each.id} ${each.status}`).join(', ')}`,
  )
}

/** Performs the acts of a run. Returns the id of the next job of its chain, if it continues. */
async function perform(
  process: SimulatedProcess,
  history: History,
  acts: readonly Act[],
  job: Job,
  ctx: ScriptedContext,
  single: JobContext | undefined,
  polite: boolean,
): Promise<string | undefined> {
  const { id } = job
  for (const each of acts) {
    if (singleOnly.has(each.act) && single === undefined) continue
    history.count(`act:${each.act}`)
    switch (each.act) {
      case 'sleep':
        await (each.polite ? process.sleep(each.for, ctx.signal) : process.sleep(each.for))
        break
      case 'block':
        history.writeTrace(process.name, `blocks for ${each.for} ms`)
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
      case 'hold':
        throw single!.hold(each.for, { of: each.of })
      case 'step':
        await takeStep(history, job, single!, each.name)
        break
      case 'nap':
        await single!.sleep(each.name, each.for)
        break
      case 'await':
        await awaitSignal(history, job, single!, each.for)
        break
      case 'hang':
        await (polite ? whenAborted(ctx.signal) : new Promise(() => {}))
        break
      case 'children': {
        const children = await Promise.all(each.jobs.map((plan, at) => addChild(single!, id, plan, at)))
        const { onFailure, cancelSiblings } = each
        return single!.waitFor(children, { onFailure, cancelSiblings })
      }
      case 'continue':
        return single!.complete(async ({ continueWith }) => {
          const { name, options, data } = childOf(each.job)
          return (await continueWith(name, data, options)).id
        })
    }
  }
  return undefined
}

/** Acts that a batch handler does not support. */
const singleOnly: ReadonlySet<Act['act']> = new Set(['children', 'continue', 'step', 'nap', 'await', 'hold'])

async function takeStep(history: History, { id, fence }: Job, ctx: JobContext, name: string): Promise<void> {
  const entry = { kind: 'stepped', id, fence, name } as const
  const take = (): number => {
    history.add({ ...entry, time: history.time })
    return fence
  }
  await ctx.step(name, take).then(
    (result) => history.add({ ...entry, time: history.time, result: JSON.stringify(result) }),
    () => {}, // the lease or the read was lost
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

function childOf({ name, runs, ownId: _own, removeOnComplete, ...options }: ChildPlan): {
  readonly name: string
  readonly data: Work
  readonly options: AddOptions
} {
  const data = { n: UNNUMBERED, runs, ...(waitsIn(runs) && { waits: true as const }) }
  return { name, data, options: { ...options, ...inMillis({ removeOnComplete }) } }
}

/** Durations with their unit, where options take no plain number. */
export function inMillis<Key extends string>(times: {
  readonly [Each in Key]: Millis | undefined
}): { readonly [Each in Key]?: string } {
  const given = Object.entries<Millis | undefined>(times).filter(([, time]) => time !== undefined)
  return Object.fromEntries(given.map(([key, time]) => [key, `${time}ms`])) as { [Each in Key]?: string }
}

/** Whether a job waits for children in one of its runs. */
export function waitsIn(runs: Work['runs']): boolean {
  return runs.flat().some(({ act }) => act === 'children')
}
