// Retries of jobs that throw, with phases and without.
import { describe, expect, test } from 'vitest'
import { Queue, UnrecoverableError, Worker, phases } from 'millrace'
import type { AddOptions, EventOf, Job, WorkerOptions } from 'millrace'
import { closing, event } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

/** Runs a job that always throws, and answers how it was retried and failed. */
async function failing(
  queue: Queue,
  options: AddOptions,
  more: { retryable?: (error: unknown, job: Job) => 'retry' | 'fatal'; error?: () => Error } = {},
) {
  const retries: EventOf<'retrying'>[] = []
  const errors: string[] = []
  const stop = queue.on('retrying', (each) => void retries.push(each))
  const failed = event(queue, 'failed')
  const added = await queue.add('work', undefined, options)
  const { error = () => new Error('it does not work'), retryable } = more
  const settings: WorkerOptions = { logger: false, ...(retryable !== undefined && { retryable }) }
  const worker = new Worker(
    queue,
    {
      work: () => {
        throw error()
      },
    },
    settings as WorkerOptions<never, readonly []>,
  )
  worker.on('error', (each) => void errors.push(each.error.message))
  const last = await failed
  await worker.close()
  stop()
  return { job: await added.refresh(), retries, last, errors, waits: retries.map(({ runAt, at }) => runAt - at) }
}

describe.each(kinds)('on %s', (kind) => {
  test('attempts includes the initial attempt; each retry is announced, and the last failure is failed', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const { job, retries, last } = await failing(queue, { attempts: 3, backoff: 1 })
    expect(retries.map(({ attempt, error }) => [attempt, error.message])).toEqual([
      [1, 'it does not work'],
      [2, 'it does not work'],
    ])
    expect(last).toMatchObject({ attempt: 3, error: { message: 'it does not work' } })
    expect([job.state, job.errors.map(({ attempt }) => attempt)]).toEqual(['failed', [1, 2, 3]])
    const once = await failing(queue, { attempts: 1 })
    expect([once.retries.length, once.last.attempt]).toEqual([0, 1])
  })

  test('retryable decides between retry and terminal failure, by the error and the job', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const asked: unknown[] = []
    const { retries, last } = await failing(
      queue,
      { attempts: 5, backoff: 1 },
      {
        retryable: (error, { attempt, attempts }) => {
          asked.push([(error as Error).message, attempt, attempts])
          return attempt < 2 ? 'retry' : 'fatal'
        },
      },
    )
    expect(asked).toEqual([
      ['it does not work', 1, 5],
      ['it does not work', 2, 5],
    ])
    expect([retries.length, last.attempt]).toEqual([1, 2])
    const hopeless = await failing(queue, { attempts: 5 }, { error: () => new UnrecoverableError('hopeless') })
    expect([hopeless.retries.length, hopeless.last.attempt]).toEqual([0, 1])
  })

  test('backoff can be fixed, linear, or exponential', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const waits = async (type: 'fixed' | 'linear' | 'exponential'): Promise<readonly number[]> =>
      (await failing(queue, { attempts: 4, backoff: { type, delay: 2 } })).waits
    expect(await waits('fixed')).toEqual([2, 2, 2])
    expect(await waits('linear')).toEqual([2, 4, 6])
    expect(await waits('exponential')).toEqual([2, 4, 8])
  })

  test('recoverable retries keep the job delayed until a time to come', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const retrying = event(queue, 'retrying')
    const delayed = event(queue, 'delayed')
    const added = await queue.add('work', undefined, { backoff: '1h' })
    const worker = closing(
      new Worker(
        queue,
        {
          work: phases({
            first: () => 1,
            second: () => {
              throw new Error('later')
            },
          }),
        },
        { logger: false },
      ),
    )
    const { runAt, at } = await retrying
    expect(runAt - at).toBe(3_600_000)
    expect((await delayed).runAt).toBe(runAt)
    await worker.close()
    await added.refresh()
    expect([added.state, added.attempt]).toEqual(['delayed', 1])
    expect(added.phases).toMatchObject({
      first: { status: 'completed', progress: 100, result: 1 },
      second: { status: 'failed', progress: 0, error: { name: 'Error', message: 'later' } },
    })
  })
})

test('the rule speaks for phases as well, within what they allow', async () => {
  const queue = closing(new Queue('work', { store: await make('memory'), logger: false }))
  const asked: number[] = []
  const failed = event(queue, 'failed')
  await queue.add('work', undefined, { attempts: 10, backoff: 1 })
  const second = {
    run: () => {
      throw new Error('no')
    },
    attempts: 3,
  }
  const retryable = (_error: unknown, { attempt }: Job): 'retry' => (asked.push(attempt), 'retry')
  const options = { logger: false, retryable } as const
  closing(new Worker(queue, { work: phases({ first: () => 1, second }) }, options))
  expect((await failed).attempt).toBe(3)
  expect(asked).toEqual([1, 2, 3])
})

test('a rule that answers neither of the two words is reported, and the job is tried again', async () => {
  const queue = closing(new Queue('work', { store: await make('memory'), logger: false }))
  const { last, errors } = await failing(queue, { attempts: 2, backoff: 1 }, { retryable: () => false as never })
  expect(last.attempt).toBe(2)
  expect(errors[0]).toContain("it must answer 'retry' or 'fatal'")
})
