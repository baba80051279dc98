// testing/observed.ts: handlers whose every run is written down.
import { parseDuration } from '../job/duration.js'
import type { Millis } from '../job/job.js'
import type { JobDefinitions } from '../queue/define.js'
import type { Handler, HandlerOptions, Handlers } from '../worker/options.js'
import type { History, Run } from './history.js'
import type { Process } from './process.js'

/** Handlers by name, or one for all. */
export type AnyHandlers = Handler | Handlers<JobDefinitions>

/** The same handlers, watched. */
export function observed(process: Process, history: History, handlers: AnyHandlers): Handler {
  return typeof handlers === 'function'
    ? watched(process, history, handlers)
    : (Object.fromEntries(
        Object.entries(handlers).map(([name, handler]) => [name, watchedOne(process, history, handler as Handler)]),
      ) as unknown as Handler) // a worker takes either, and checks for itself
}

function watchedOne(process: Process, history: History, handler: Handler | HandlerOptions): Handler | HandlerOptions {
  if (typeof handler === 'function') return watched(process, history, handler)
  const { timeout } = handler
  const limit = timeout === undefined ? undefined : parseDuration(timeout, 'timeout')
  return { ...handler, run: watched(process, history, handler.run, limit) }
}

function watched(process: Process, history: History, run: Handler, limit?: Millis): Handler {
  return (job, ctx) => {
    const { id, fence, worker = '' } = job
    const current: Run = { process: process.name, worker, id, fence, timeout: job.timeout ?? limit }
    history.add({ kind: 'started', time: history.time, run: current })
    history.say(process.name, `starts ${id}@${fence}, attempt ${job.attempt}`)
    ctx.signal.addEventListener('abort', () => {
      const reason = ctx.signal.reason?.reason ?? 'unknown'
      history.add({ kind: 'aborted', time: history.time, run: current, reason })
      history.say(process.name, `aborts ${id}@${fence}: ${reason}`)
    })
    const ended = (how: 'returned' | 'threw'): void => {
      history.add({ kind: 'ended', time: history.time, run: current, how })
      history.say(process.name, `${how} in ${id}@${fence}`)
    }
    try {
      const result = run(job, ctx)
      if (!(result instanceof Promise)) {
        ended('returned')
        return result
      }
      return result.then(
        (value: unknown) => {
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
}
