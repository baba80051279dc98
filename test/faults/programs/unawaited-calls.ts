// A program whose handlers forget functions in which calls of ctx fail, mostly after the handler has ended.
import { Queue, Worker, phases, shutdown } from '../../../src/index.js'
import type { JobContext, Store } from '../../../src/index.js'
import { memory } from '../../../src/memory.js'
import { sqlite } from '../../../src/sqlite.js'
import { MillraceError } from '../../../src/job/errors/errors.js'
import { input, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface UnawaitedInput {
  /** The file of its database; without one, its jobs are in memory. */
  readonly path?: string
}

/** What was reported of each job: its name, the call, and the code of the error. */
export interface UnawaitedMessage {
  readonly kind: 'ended'
  readonly reported: readonly string[]
  /** The codes that code got which handles the errors itself. */
  readonly handled: readonly string[]
  /** The names of the jobs that were completed. */
  readonly completed: readonly string[]
}

type Forgotten = (ctx: JobContext) => unknown

const given = input() as UnawaitedInput
const inner = given.path === undefined ? memory() : sqlite(given.path)
/** A store that refuses to write one progress. */
const store = new Proxy<Store>(inner, {
  get: (target, key) => {
    const value: unknown = Reflect.get(target, key)
    if (typeof value !== 'function') return value
    if (key !== 'commit') return (value as () => unknown).bind(target)
    return async (batch: Parameters<Store['commit']>[0]) => {
      const refused = batch.groups.flat().some((change) => change.kind === 'note' && change.progress === '"refused"')
      if (refused) throw new MillraceError('DATA_TOO_LARGE', 'The store takes no such progress.')
      return target.commit(batch)
    }
  },
})

/** Calls made once the job is settled, each in a function that awaits it and that nothing awaits. */
const late: Readonly<Record<string, Forgotten>> = {
  progress: (ctx) => ctx.progress('late'),
  progressOfNoJson: (ctx) => ctx.progress((() => {}) as never),
  log: (ctx) => ctx.log('late'),
  step: (ctx) => ctx.step('late', () => 1),
  stepWithoutName: (ctx) => ctx.step('', () => 1),
  sleepOfNoTime: (ctx) => ctx.sleep('late', 'soon'),
  signalWithoutName: (ctx) => ctx.waitForSignal(''),
  add: (ctx) => ctx.add('other', 1),
  complete: (ctx) => ctx.complete(() => 1),
  completeInNoTransaction: (ctx) => ctx.complete({ tx: undefined as never }, () => 1),
  prepare: (ctx) => ctx.prepare({ mode: 'staged' }, () => 1),
  dependencies: (ctx) => ctx.dependencies({ limit: -1 }),
  waitFor: (ctx) => ctx.waitFor('other'),
  waitForNothing: (ctx) => ctx.waitFor([]),
  snooze: (ctx) => ctx.snooze('1 day'),
  snoozeForNoTime: (ctx) => ctx.snooze('soon'),
  // Nothing awaits the call itself either.
  floatingAdd: (ctx) => void ctx.add('other', 1),
  floatingStep: (ctx) => void ctx.step('late', () => 1),
  floatingComplete: (ctx) => void ctx.complete(() => 1),
}

/** Calls made while the handler runs. */
const early: Readonly<Record<string, Forgotten>> = {
  refused: (ctx) => ctx.progress('refused'),
  throwingStep: (ctx) =>
    ctx.step('throws', () => {
      throw new TypeError('of the step')
    }),
  addOfNoJson: (ctx) => ctx.add('other', () => {}),
}

/** Calls in a batch, once its jobs are settled. */
const batched: Readonly<Record<string, Forgotten>> = {
  batchProgress: (ctx) => ctx.progress('late'),
  batchStep: (ctx) => ctx.step('late', () => 1),
  batchComplete: (ctx) => ctx.complete(() => 1),
  batchPrepare: (ctx) => ctx.prepare({ mode: 'staged' }, () => 1),
}

/** Calls in the only phase of a job, once that is settled. */
const phased: Readonly<Record<string, Forgotten>> = {
  phaseProgress: (ctx) => ctx.progress(50),
  phaseProgressOfNoPercent: (ctx) => ctx.progress(200),
  phaseResult: (ctx) => (ctx as unknown as { phaseResult(name: string): unknown }).phaseResult('other'),
}

const settled = new Map<string, () => void>()

/** Makes a call in a function that nothing awaits, once the job is settled. */
function forget(name: string, call: () => unknown): void {
  const until = new Promise<void>((resolve) => settled.set(name, resolve))
  void (async () => {
    await until
    await call()
  })()
}

const queue = new Queue('work', { store, logger: false })
const reported: string[] = []
let handled: readonly string[] | undefined
const completed: string[] = []
const handlers: Record<string, unknown> = {}
for (const [name, call] of Object.entries(late)) {
  handlers[name] = (_job: unknown, ctx: JobContext) => forget(name, () => call(ctx))
}
for (const [name, call] of Object.entries(early)) {
  handlers[name] = async (_job: unknown, ctx: JobContext) => {
    await new Promise<void>((made) => {
      void (async () => {
        try {
          await call(ctx)
        } finally {
          made()
        }
      })()
    })
  }
}
for (const [name, call] of Object.entries(batched)) {
  handlers[name] = {
    batch: { size: 1 },
    runBatch: (jobs: readonly never[], ctx: { of(job: never): JobContext }) => {
      const own = ctx.of(jobs[0]!)
      forget(name, () => call(own))
      return [1]
    },
  }
}
for (const [name, call] of Object.entries(phased)) {
  handlers[name] = phases({ only: (_job, ctx) => forget(name, () => call(ctx as never)) })
}
// Work that is stopped by the signal of a handler that was cancelled.
handlers['stopped'] = async ({ id }: { readonly id: string }, ctx: JobContext) => {
  const { signal } = ctx
  void (async () => {
    await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  })()
  await queue.cancel(id)
}
// Code that handles the errors gets them.
handlers['handles'] = (_job: unknown, ctx: JobContext) =>
  forget('handles', async () => {
    const codes: string[] = []
    for (const [name, call] of Object.entries(late)) {
      if (name === 'waitFor' || name === 'snooze' || name.startsWith('floating')) continue
      try {
        await call(ctx)
      } catch (error) {
        codes.push((error as MillraceError).code)
      }
    }
    handled = codes
    check()
  })

const names = Object.keys(handlers)
const worker = new Worker(queue, handlers as never, { concurrency: 50, logger: false })
worker.on('error', ({ name, error }) => {
  const { message, cause } = error as Error & { cause?: Partial<MillraceError> }
  reported.push(`${name}: ${message.split(' ')[0]!} ${cause?.code ?? cause?.name ?? ''}`)
  check()
})
worker.on('completed', ({ name }) => {
  completed.push(name)
  settled.get(name)?.()
  check()
})

let ended = false

/** Ends once each job was reported, and the one that handles its errors has done so. */
function check(): void {
  const isOver = (name: string): boolean =>
    name === 'handles' ? handled !== undefined : reported.some((each) => each.startsWith(`${name}: `))
  if (ended || !names.every(isOver)) return
  ended = true
  // A turn later, so that an error that is reported twice is seen.
  setImmediate(() => send({ kind: 'ended', reported, handled: handled ?? [], completed } satisfies UnawaitedMessage))
}

await queue.addBulk(names.map((name) => ({ name, data: 1 })))

untilFinished(() => shutdown([worker, queue, store], { timeout: 0 }))
