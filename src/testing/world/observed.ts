// testing/world/observed.ts: wraps handlers so that the history records every run.
import { parseDuration } from '../../job/values/duration.js'
import type { Millis } from '../../job/job.js'
import type { JobDefinitions } from '../../queue/define.js'
import type { Job } from '../../queue/job.js'
import type { BatchHandler, BatchHandlerOptions } from '../../worker/batches/handler.js'
import type { JobSignal, Middleware } from '../../worker/attempt/context.js'
import type { Handler, HandlerOptions, Handlers } from '../../worker/handlers.js'
import { phasesIn } from '../../worker/phases/handler.js'
import type { History, Run } from '../check/simulated-history.js'
import type { Process } from './process.js'

/** Handlers by name, or one for all names. */
export type AnyHandlers = Handler | Handlers<JobDefinitions>

/** The same handlers, with their runs recorded. */
export function observed(process: Process, history: History, handlers: AnyHandlers): Handler {
  if (phasesIn(handlers) !== undefined) return handlers as Handler
  return typeof handlers === 'function'
    ? recorded(process, history, handlers)
    : (Object.fromEntries(
        Object.entries(handlers).map(([name, handler]) => [name, recordedOne(process, history, handler as Handler)]),
      ) as unknown as Handler) // a worker takes either form and checks it itself
}

type OneHandler = Handler | HandlerOptions | BatchHandlerOptions

function recordedOne(process: Process, history: History, handler: OneHandler): OneHandler {
  if (typeof handler === 'function') return recorded(process, history, handler)
  if (isInPhases(handler)) return handler
  const { timeout } = handler
  const limit = timeout === undefined ? undefined : parseDuration(timeout, 'timeout')
  return 'runBatch' in handler
    ? { ...handler, runBatch: recordedBatch(process, history, handler.runBatch, limit) }
    : { ...handler, run: recorded(process, history, handler.run, limit) }
}

function isInPhases(handler: unknown): boolean {
  return (phasesIn(handler) ?? phasesIn((handler as HandlerOptions | undefined)?.run)) !== undefined
}

/** Middleware that records runs in phases, which cannot be wrapped as functions are; empty if no handler has phases. */
export function phasesObserved(process: Process, history: History, handlers: AnyHandlers): readonly Middleware[] {
  const all = isInPhases(handlers)
  const hasPhases = (name: string): boolean =>
    all || (Object.hasOwn(handlers, name) && isInPhases((handlers as Handlers<JobDefinitions>)[name]))
  const anyPhases = all || Object.values(handlers).some(isInPhases)
  const around: Middleware = (job, ctx, next) => {
    if (!hasPhases(job.name)) return next()
    return whenEnded(() => next(), begin(process, history, job, ctx.signal, undefined))
  }
  return anyPhases ? [around] : []
}

function recorded(process: Process, history: History, run: Handler, limit?: Millis): Handler {
  return (job, ctx) => {
    const ended = begin(process, history, job, ctx.signal, limit)
    return whenEnded(() => run(job, ctx), ended)
  }
}

function recordedBatch(process: Process, history: History, run: BatchHandler, limit?: Millis): BatchHandler {
  return (jobs, ctx) => {
    const call = history.nextCall()
    const ends = jobs.map((job) => begin(process, history, job, ctx.of(job).signal, limit, call))
    const ended = (how: 'returned' | 'threw'): void => {
      for (const each of ends) each(how)
    }
    return whenEnded(() => run(jobs, ctx), ended)
  }
}

/** Records the start of a run, and its abort if there is one. Returns a function that records its end. */
function begin(
  process: Process,
  history: History,
  job: Job,
  signal: JobSignal,
  limit: Millis | undefined,
  call?: number,
): (how: 'returned' | 'threw') => void {
  const { id, fence, worker = '' } = job
  const base = { process: process.name, worker, id, fence, timeout: job.timeout ?? limit }
  const current: Run = call === undefined ? base : { ...base, call }
  history.add({ kind: 'started', time: history.time, run: current })
  history.writeTrace(
    process.name,
    `starts ${id}@${fence}, attempt ${job.attempt}${call === undefined ? '' : `, call ${call}`}`,
  )
  signal.addEventListener('abort', () => {
    const reason = signal.reason?.reason ?? 'unknown'
    history.add({ kind: 'aborted', time: history.time, run: current, reason })
    history.writeTrace(process.name, `aborts ${id}@${fence}: ${reason}`)
  })
  return (how) => {
    history.add({ kind: 'ended', time: history.time, run: current, how })
    history.writeTrace(process.name, `${how} in ${id}@${fence}`)
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
