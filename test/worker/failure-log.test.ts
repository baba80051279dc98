// What a worker prints of failures: which of them, in which words, how often, and when it prints nothing.
import { Worker, UnrecoverableError, phases } from 'millrace'
import type { Job, Logger, Queue, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { describeError } from '../../src/job/errors/failure.js'
import type { ErrorInfo } from '../../src/job/job.js'
import { settle } from '../../src/job/lifecycle.js'
import { FailureLog } from '../../src/worker/failure-log.js'
import { active } from '../job/lifecycle.records.js'
import { closing, event, gate, newQueue } from '../setup.js'
import { asking } from '../stores/memory/table.making.js'

let printed: { level: 'warn' | 'error'; line: string; more: readonly unknown[] }[]

beforeEach(() => {
  printed = []
  for (const level of ['warn', 'error'] as const) {
    vi.spyOn(console, level).mockImplementation((line: unknown, ...more: unknown[]) => {
      printed.push({ level, line: String(line), more })
    })
  }
})
afterEach(() => vi.restoreAllMocks())

/** A worker with the logger that a worker has if none is given. */
function speaking(
  queue: Queue,
  handlers: ConstructorParameters<typeof Worker>[1],
  options: WorkerOptions<never, readonly []> = {},
): Worker {
  return closing(new Worker(queue, handlers as never, options as object))
}

/** Adds a job and waits until it has failed, for good or not. */
async function failing(queue: Queue, worker: Worker, type: 'failed' | 'retrying', name = 'send'): Promise<Job> {
  const failed = event(worker, type, (each) => each.name === name)
  const job = await queue.add(name, undefined, { attempts: type === 'failed' ? 1 : 3, backoff: '1h' })
  await failed
  return job
}

const throwing = (message: string) => () => {
  throw new Error(message)
}

describe('a worker without a logger', () => {
  it('prints one line for a job that failed for good: name, id, attempt, message and place', async () => {
    const queue = newQueue({ name: 'emails' })
    const worker = speaking(queue, { send: throwing('no such\n\taddress \u001b[31m') })
    const { id } = await failing(queue, worker, 'failed')
    expect(printed).toHaveLength(1)
    const [{ level, line, more }] = printed as [(typeof printed)[0]]
    expect({ level, more }).toEqual({ level: 'error', more: [] })
    expect(line).toMatch(
      /^millrace: job 'send' \S+ in queue 'emails' failed for good in attempt 1 of 1: no such address \[31m \(test\/worker\/failure-log\.test\.ts:\d+:\d+\)$/,
    )
    expect(line).toContain(id)
  })

  it('prints one line for the first retry of a name, with the time of the next attempt, and none for further ones', async () => {
    const queue = newQueue()
    const worker = speaking(queue, { send: throwing('try later'), call: throwing('busy') })
    const job = await failing(queue, worker, 'retrying')
    await failing(queue, worker, 'retrying')
    await failing(queue, worker, 'retrying', 'call')
    expect(printed.map(({ level }) => level)).toEqual(['warn', 'warn'])
    expect(printed[0]!.line).toContain(`'send' ${job.id} in queue 'work' failed in attempt 1 of 3 and runs again at `)
    const [time] = /\d{4}-\S+Z/.exec(printed[0]!.line)!
    expect(Date.parse(time)).toBeGreaterThan(job.createdAt + 3_500_000)
    expect(printed[1]!.line).toContain("'call'")
  })

  it('prints the next retry of a name after a minute of the clock of its store', async () => {
    const clock = virtualClock()
    const queue = newQueue({ store: closing(memory({ runtime: clock.runtime })) })
    const worker = speaking(queue, throwing('try later'))
    const retried = async (): Promise<void> => {
      const failed = event(worker, 'retrying')
      await queue.add('send', undefined, { backoff: '1h' })
      await clock.until(failed)
    }
    await retried()
    await clock.advance('59s')
    await retried()
    expect(printed).toHaveLength(1)
    await clock.advance('1s')
    await retried()
    expect(printed).toHaveLength(2)
  })

  it('prints nothing for jobs that complete, are snoozed, or are cancelled while they run', async () => {
    const queue = newQueue()
    const worker = speaking(queue, {
      fine: () => 'done',
      later: (_job, ctx) => ctx.snooze('1h'),
      stop: (_job, ctx) =>
        new Promise((_, reject) => ctx.signal.addEventListener('abort', () => reject(new Error('no')))),
    })
    const snoozed = event(queue, 'delayed')
    await queue.add('later')
    await snoozed
    const active = event(worker, 'active', ({ name }) => name === 'stop')
    const job = await queue.add('stop')
    await active
    await job.cancel()
    await (await queue.add('fine')).result() // which has the only slot, so the other handler has ended
    expect(printed).toEqual([])
  })

  it('prints the last failure of a job that was retried, and of one that is removed at once', async () => {
    const queue = newQueue()
    const worker = speaking(queue, throwing('still no'))
    const failed = event(worker, 'failed')
    await queue.add('send', undefined, { attempts: 2, backoff: 0, removeOnFail: true })
    await failed
    expect(
      printed.map(({ line }) => /failed in attempt 1 of 2|failed for good in attempt 2 of 2/.exec(line)?.[0]),
    ).toEqual(['failed in attempt 1 of 2', 'failed for good in attempt 2 of 2'])
  })

  it('prints each job of a batch that failed, and not those that completed', async () => {
    const queue = newQueue()
    const jobs = await queue.addBulk([1, 2, 3].map((data) => ({ name: 'index', data, options: { attempts: 1 } })))
    const worker = speaking(
      queue,
      {
        index: {
          runBatch: (batch: readonly Job[]) => batch.map(({ data }) => (data === 2 ? 'fine' : new Error('bad'))),
          batch: { size: 3 },
        },
      },
      { autorun: false },
    )
    await worker.run()
    await Promise.allSettled(jobs.map((job) => job.result()))
    await worker.close()
    expect(printed.map(({ line }) => jobs.findIndex(({ id }) => line.includes(id)))).toEqual([0, 2])
  })

  it('prints a job whose phase failed for good', async () => {
    const queue = newQueue()
    const worker = speaking(queue, { film: phases({ load: () => 1, cut: throwing('no scissors') }) })
    await failing(queue, worker, 'failed', 'film')
    expect(printed.map(({ line }) => line)).toEqual([expect.stringContaining('no scissors')])
  })

  it('prints a timeout by its code, without a place, because no code of the program made it', async () => {
    const queue = newQueue()
    const worker = speaking(queue, {
      slow: {
        timeout: 10,
        run: (_job: Job, ctx: { signal: AbortSignal }) =>
          new Promise((resolve) => ctx.signal.addEventListener('abort', resolve)),
      },
    })
    await failing(queue, worker, 'failed', 'slow')
    expect(printed[0]!.line).toMatch(/failed for good in attempt 1 of 1: JOB_TIMEOUT: The handler ran past [^()]*$/)
  })

  it('prints the job of a dead worker: that it stalled once a minute, and that its attempts are exhausted', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const queue = newQueue({ store, name: 'mill' })
    await queue.add('grind', undefined, { id: 'over', attempts: 1 })
    await queue.add('grind', undefined, { id: 'again', attempts: 2 })
    await queue.add('grind', undefined, { id: 'prefetched', attempts: 2 })
    await claimAsDead(store)
    const failed = event(queue, 'failed')
    speaking(queue, { other: () => {} })
    await clock.until(failed)
    await clock.settle()
    expect(printed.map(({ level, line }) => [level, line])).toEqual([
      ['error', expect.stringMatching(/'grind' over .*failed for good in attempt 1 of 1: JOB_EXHAUSTED: /)],
      ['warn', expect.stringMatching(/'grind' again .*stalled in attempt 1 of 2 and runs again at once: worker dead/)],
    ])
  })

  it('prints a job that failed because one that it waits for did', async () => {
    const queue = newQueue()
    const worker = speaking(queue, { load: throwing('no rows'), sum: () => 1 })
    const failed = event(queue, 'failed', ({ name }) => name === 'sum')
    const load = await queue.add('load', undefined, { attempts: 1 })
    await queue.add('sum', undefined, { after: [load] })
    await failed
    await worker.close()
    expect(printed.map(({ line }) => /'(\w+)'/.exec(line)![1])).toEqual(['load', 'sum'])
    expect(printed[1]!.line).toContain(`failed for good before its first attempt: DEPENDENCY_FAILED: Job ${load.id}`)
  })

  it('prints failures with listeners, too', async () => {
    const queue = newQueue()
    const worker = speaking(queue, throwing('no'))
    worker.on('failed', () => {})
    queue.on('failed', () => {})
    await failing(queue, worker, 'failed')
    expect(printed).toHaveLength(1)
  })

  it('goes on if the console throws', async () => {
    vi.mocked(console.error).mockImplementation(() => {
      throw new Error('broken pipe')
    })
    const queue = newQueue()
    const worker = speaking(queue, { send: throwing('no'), fine: () => 'done' })
    await failing(queue, worker, 'failed')
    expect(await (await queue.add('fine')).result()).toBe('done')
  })
})

/** Claims all jobs of the queue `mill` as a worker that then disappears; the third is only prefetched. */
async function claimAsDead(store: Store): Promise<void> {
  const ask = asking(2, { worker: 'dead', ahead: 1 })
  const { asks } = await store.commit({ writer: 'dead', seq: 1, groups: [], renewals: [], asks: [ask] })
  expect(asks[0]!.map(({ id, ahead }) => ({ id, ahead }))).toEqual([
    { id: 'over', ahead: false },
    { id: 'again', ahead: false },
    { id: 'prefetched', ahead: true },
  ])
}

describe('a worker with a logger', () => {
  it('that is false prints nothing', async () => {
    const queue = newQueue()
    const worker = speaking(queue, { send: throwing('no'), again: throwing('later') }, { logger: false })
    await failing(queue, worker, 'failed')
    await failing(queue, worker, 'retrying', 'again')
    expect(printed).toEqual([])
  })

  it('of its own gives that logger what happens, and prints nothing', async () => {
    const lines: [string, string, object][] = []
    const log =
      (level: string) =>
      (details: object, message: string): void =>
        void lines.push([level, message, details])
    const logger: Logger = { info: log('info'), warn: log('warn'), error: log('error') }
    const queue = newQueue()
    const worker = speaking(queue, { send: throwing('no'), again: throwing('later') }, { logger })
    const { id } = await failing(queue, worker, 'failed')
    await failing(queue, worker, 'retrying', 'again')
    expect(lines.map(([level, message]) => [level, message])).toEqual([
      ['info', 'job failed'],
      ['info', 'job retrying'],
    ])
    expect(lines[0]![2]).toMatchObject({ id, name: 'send', queue: 'work', attempt: 1, err: { message: 'no' } })
    expect(printed).toEqual([])
  })
})

describe('the lines about failures', () => {
  const failed = (error: ErrorInfo) => ({ kind: 'threw', error, retryable: false, retryIn: 0 }) as const
  const retried = (retryIn = 1000) =>
    ({ kind: 'threw', error: describeError(new Error('later')), retryable: true, retryIn }) as const
  let now = 0
  const log = (): { lines: string[]; log: FailureLog } => {
    const lines: string[] = []
    const push = (_details: object, line: string): void => void lines.push(line)
    return { lines, log: new FailureLog({ warn: push, error: push }, { now: () => now, elapsed: () => now }) }
  }
  const job = (name: string) => active({ name, attempts: 5 })

  it('are at most 100 a minute about jobs of one name that failed for good, and the last one mentions the bound', () => {
    const { lines, log: failures } = log()
    const error = describeError(new UnrecoverableError('never'))
    const fail = (name: string): void => failures.applied(job(name), settle(job(name), failed(error)))
    for (let n = 0; n < 500; n++) fail('flood')
    expect(lines).toHaveLength(100)
    expect(lines.at(-1)).toMatch(/; no more lines about this name for up to a minute$/)
    expect(lines.at(-2)).not.toMatch(/no more lines/)
    fail('other')
    expect(lines).toHaveLength(101)
    now += 60_000
    fail('flood')
    expect(lines).toHaveLength(102)
  })

  it('are counted by a bounded number of names, which are forgotten after a minute', () => {
    const { lines, log: failures } = log()
    for (let n = 0; n < 5000; n++) failures.applied(job(`name ${n}`), settle(job(`name ${n}`), retried()))
    expect(failures.names).toBeLessThanOrEqual(1001)
    expect(lines).toHaveLength(1001)
    now += 60_000
    failures.applied(job('name 1'), settle(job('name 1'), retried()))
    expect(failures.names).toBe(1)
    expect(lines).toHaveLength(1002)
  })

  it('cut a long message, and state attempts without a limit and times without a date', () => {
    const { lines, log: failures } = log()
    const endless = { ...job('poll'), attempts: Infinity }
    failures.applied(endless, settle(endless, retried(1e300)))
    expect(lines[0]).toMatch(/failed in attempt \d+ and runs again in the far future: later/)
    failures.applied(endless, settle(endless, failed({ name: 'Error', message: 'x'.repeat(10_000) })))
    expect(lines[1]).toMatch(/: x{300}…$/)
  })
})

describe('the events of a worker', () => {
  it('carry the job as it is after what they report', async () => {
    const queue = newQueue()
    const go = gate()
    const worker = speaking(
      queue,
      async (job, ctx) => {
        await go.promise
        await ctx.progress(40)
        if (job.name === 'send') throw new Error(`no ${job.attempt}`)
        return 'fine'
      },
      { logger: false },
    )
    const seen: Record<string, unknown>[] = []
    for (const type of ['active', 'progress', 'retrying', 'failed', 'completed'] as const) {
      worker.on(type, ({ job }) => {
        const { state, attempt, progress, returned, error, errors } = job
        seen.push({
          type,
          id: job.id,
          state,
          attempt,
          progress,
          returned,
          message: error?.message,
          errors: errors.length,
        })
      })
    }
    const failed = event(worker, 'failed')
    const sending = await queue.add('send', { to: 'ann' }, { id: 'send', attempts: 2, backoff: 0 })
    go.open()
    expect((await failed) as unknown as { job: Job }).toMatchObject({ job: { data: { to: 'ann' } } })
    await (await queue.add('other', undefined, { id: 'other' })).result()
    await worker.close()
    const none = { returned: undefined, message: undefined, errors: 0 }
    expect(seen).toEqual([
      { type: 'active', id: 'send', state: 'active', attempt: 1, progress: undefined, ...none },
      { type: 'progress', id: 'send', state: 'active', attempt: 1, progress: 40, ...none },
      { type: 'retrying', id: 'send', state: 'waiting', attempt: 1, progress: 40, ...none, message: 'no 1', errors: 1 },
      { type: 'active', id: 'send', state: 'active', attempt: 2, progress: 40, ...none, message: 'no 1', errors: 1 },
      { type: 'progress', id: 'send', state: 'active', attempt: 2, progress: 40, ...none, message: 'no 1', errors: 1 },
      { type: 'failed', id: 'send', state: 'failed', attempt: 2, progress: 40, ...none, message: 'no 2', errors: 2 },
      { type: 'active', id: 'other', state: 'active', attempt: 1, progress: undefined, ...none },
      { type: 'progress', id: 'other', state: 'active', attempt: 1, progress: 40, ...none },
      { type: 'completed', id: 'other', state: 'completed', attempt: 1, progress: 40, ...none, returned: 'fine' },
    ])
    expect(await sending.refresh()).toMatchObject({ state: 'failed' })
  })
})
