// testing/world/observed.ts: handlers whose every run is written down.
import { parseDuration } from '../../job/duration.js'
import type { Millis } from '../../job/job.js'
import type { JobDefinitions } from '../../queue/define.js'
import type { Job } from '../../queue/job.js'
import type { BatchHandler, BatchHandlerOptions } from '../../worker/batches/types.js'
import type { JobSignal, Middleware } from '../../worker/attempt/context.js'
import type { Handler, HandlerOptions, Handlers } from '../../worker/handlers.js'
import { phasesIn } from '../../worker/phases/types.js'
import type { History, Run } from '../check/history.js'
import type { Process } from './process.js'

/** Handlers by name, or one for all. */
export type AnyHandlers = Handler | Handlers<JobDefinitions>

/** The same handlers, watched. */
export function observed(process: Process, history: History, handlers: AnyHandlers): Handler {
  if (phasesIn(handlers) !== undefined) return handlers as Handler
  return typeof handlers === 'function'
    ? watched(process, history, handlers)
    : (Object.fromEntries(
        Object.entries(handlers).map(([name, handler]) => [name, watchedOne(process, history, handler as Handler)]),
      ) as unknown as Handler) // a worker takes either, and checks for itself
}

type OneHandler = Handler | HandlerOptions | BatchHandlerOptions

function watchedOne(process: Process, history: History, handler: OneHandler): OneHandler {
  if (typeof handler === 'function') return watched(process, history, handler)
  if (isInPhases(handler)) return handler
  const { timeout } = handler
  const limit = timeout === undefined ? undefined : parseDuration(timeout, 'timeout')
  return 'runBatch' in handler
    ? { ...handler, runBatch: watchedBatch(process, history, handler.runBatch, limit) }
    : { ...handler, run: watched(process, history, handler.run, limit) }
}

function isInPhases(handler: unknown): boolean {
  return (phasesIn(handler) ?? phasesIn((handler as HandlerOptions | undefined)?.run)) !== undefined
}

/** What watches runs in phases, which cannot be wrapped as functions are; none where there are no such handlers. */
export function phasesObserved(process: Process, history: History, handlers: AnyHandlers): readonly Middleware[] {
  const all = isInPhases(handlers)
  const watches = (name: string): boolean =>
    all || (Object.hasOwn(handlers, name) && isInPhases((handlers as Handlers<JobDefinitions>)[name]))
  const some = all || Object.values(handlers).some(isInPhases)
  const around: Middleware = (job, ctx, next) => {
    if (!watches(job.name)) return next()
    return whenEnded(() => next(), begin(process, history, job, ctx.signal, undefined))
  }
  return some ? [around] : []
}

function watched(process: Process, history: History, run: Handler, limit?: Millis): Handler {
  return (job, ctx) => {
    const ended = begin(process, history, job, ctx.signal, limit)
    return whenEnded(() => run(job, ctx), ended)
  }
}

function watchedBatch(process: Process, history: History, run: BatchHandler, limit?: Millis): BatchHandler {
  return (jobs, ctx) => {
    const call = history.nextCall()
    const ends = jobs.map((job) => begin(process, history, job, ctx.of(job).signal, limit, call))
    const ended = (how: 'returned' | 'threw'): void => {
      for (const each of ends) each(how)
    }
    return whenEnded(() => run(jobs, ctx), ended)
  }
}

/** Writes down that a run has begun, and when it is told to stop; answers how to say that it has ended. */
function begin(
  process: Process,
  history: History,
  job: Job,
  signal: JobSignal,
  limit: Millis | undefined,
  call?: number,
): (how: 'returned' | 'threw') => void {
  const { id, fence, worker = '' } = job
  const of = { process: process.name, worker, id, fence, timeout: job.timeout ?? limit }
  const current: Run = call === undefined ? of : { ...of, call }
  history.add({ kind: 'started', time: history.time, run: current })
  history.say(
    process.name,
    `starts ${id}@${fence}, attempt ${job.attempt}${call === undefined ? '' : `, call ${call}`}`,
  )
  signal.addEventListener('abort', () => {
    const reason = signal.reason?.reason ?? 'unknown'
    history.add({ kind: 'aborted', time: history.time, run: current, reason })
    history.say(process.name, `aborts ${id}@${fence}: ${reason}`)
  })
  return (how) => {
    history.add({ kind: 'ended', time: history.time, run: current, how })
    history.say(process.name, `${how} in ${id}@${fence}`)
  }
}

function whenEnded<T>(work: () => T | Promise<T>, ended: (how: 'returned' | 'threw') => void): T | Promise<T> {
  try {
    const result = work()
    if (!(result instanceof Promise)) {
      ended('returned')
      return result
    }
    return result.then(
      (value) => {
        ended('returned')
        return value
      },
      (error: unknown) => {
        ended('threw')
        throw error
      },
    )
  } catch (error) {
    ended('threw')
    throw error
  }
}
