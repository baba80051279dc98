// A program whose handlers do not await functions in which a job is left.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import type { JobContext } from '../../../src/index.js'
import { memory } from '../../../src/memory.js'
import { input, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface ForgetfulInput {
  /** In the end, it rejects a promise of its own that has no handler. */
  readonly rejects?: true
}

/** What became of its jobs: by name, the state, the code of the error and the attempts; and what was reported. */
export interface ExitMessage {
  readonly kind: 'ended'
  readonly jobs: Readonly<Record<string, string>>
  readonly reported: readonly string[]
}

const pause = (): Promise<void> => new Promise((resolve) => void setTimeout(resolve, 20))

/** Calls something in a function without awaiting it, and returns after a while. */
function forgets(call: (ctx: JobContext) => unknown): (_job: unknown, ctx: JobContext) => Promise<string> {
  return async (_job, ctx) => {
    void (async () => {
      await pause()
      await call(ctx)
    })()
    await pause()
    await pause()
    await pause()
    return 'returned'
  }
}

const given = input() as ForgetfulInput
const store = memory()
const queue = new Queue('work', { store, logger: false })
const reported: string[] = []
const handlers = {
  sleep: forgets((ctx) => ctx.sleep('a while', '1 day')),
  waitForSignal: forgets((ctx) => ctx.waitForSignal('go')),
  snooze: forgets((ctx) => ctx.snooze('1 day')),
  waitFor: forgets((ctx) => ctx.waitFor('other')),
  // What it does before it rejects takes longer than its attempt.
  late: forgets(async (ctx) => {
    try {
      await ctx.sleep('a while', '1 day')
    } finally {
      await pause()
      await pause()
      await pause()
    }
  }),
  // The handler throws something of its own, and is retried.
  throws: async (job: { readonly attempt: number }, ctx: JobContext) => {
    if (job.attempt > 1) return 'returned'
    await forgets((own) => own.snooze('1 day'))(job, ctx)
    throw new Error('its own')
  },
}
const worker = new Worker(queue, handlers, { concurrency: 10, logger: false })
worker.on('error', ({ error }) => void reported.push(error.message))
worker.on('completed', () => void check())
worker.on('failed', () => void check())
queue.on('delayed', () => void check())

const jobs = await Promise.all(Object.keys(handlers).map((name) => queue.add(name, 1, { backoff: 1 })))
let ended = false

async function check(): Promise<void> {
  const now = await Promise.all(jobs.map((job) => job.refresh()))
  const over = now.every(({ name, state }) =>
    ['completed', 'failed', ...(name === 'late' ? ['delayed'] : [])].includes(state),
  )
  if (!over || ended) return
  ended = true
  while (reported.length === 0) await pause()
  const shown = now.map(({ name, state, error, attempt }) => [name, `${state} ${error?.code ?? ''} ${attempt}`])
  send({ kind: 'ended', jobs: Object.fromEntries(shown), reported } satisfies ExitMessage)
  if (given.rejects) void Promise.reject(new Error('of the program itself'))
}

untilFinished(() => shutdown([worker, queue, store], { timeout: 0 }))
