// The arguments of listeners, by the type of event, and how errors are narrowed.
import { Queue, Worker, defineJobs, isMillraceError, job } from 'millrace'
import type {
  ErrorCode,
  ErrorInfo,
  EventOf,
  EventType,
  JobOf,
  Listener,
  MillraceError,
  NameOf,
  QueueEvent,
  Stop,
  WorkerEventOf,
} from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue, store, untyped } from './jobs.js'
import type { jobs } from './jobs.js'

const worker = new Worker(queue, { sweep: () => 5 })

describe('on', () => {
  test('gives each listener the fields of its type of event, on queues and workers alike', () => {
    const check = (event: EventOf<'completed'>): void => {
      expectTypeOf(event.type).toEqualTypeOf<'completed'>()
      expectTypeOf(event.id).toEqualTypeOf<string>()
      expectTypeOf(event.result).toEqualTypeOf<unknown>()
    }
    queue.on('completed', check)
    worker.on('completed', check)
    queue.on('failed', ({ error, attempt }) => {
      expectTypeOf(error).toEqualTypeOf<ErrorInfo>()
      expectTypeOf(attempt).toEqualTypeOf<number>()
    })
    queue.on('retrying', ({ runAt }) => expectTypeOf(runAt).toEqualTypeOf<number>())
    queue.on('delayed', ({ runAt }) => expectTypeOf(runAt).toEqualTypeOf<number>())
    queue.on('progress', ({ progress }) => expectTypeOf(progress).toEqualTypeOf<unknown>())
    queue.on('active', ({ worker: holder }) => expectTypeOf(holder).toEqualTypeOf<string>())
    worker.on('error', ({ error }) => expectTypeOf(error).toEqualTypeOf<Error>())
    worker.on('lease-lost', async ({ id, worker: holder }) => `${id} ${holder}`)
    expectTypeOf(worker.on('active', () => {})).toEqualTypeOf<Stop>()
  })

  test('infers the results of declared jobs by their names, on queues and workers alike', () => {
    const completed = (event: EventOf<'completed', typeof jobs>): void => {
      expectTypeOf(event.name).toEqualTypeOf<NameOf<typeof jobs>>()
      if (event.name === 'charge') expectTypeOf(event.result).toEqualTypeOf<{ receipt: string }>()
      if (event.name === 'email') expectTypeOf(event.result).toEqualTypeOf<{ messageId: string; copies: number }>()
      if (event.name === 'sweep') expectTypeOf(event.result).toEqualTypeOf<number>()
      // @ts-expect-error there is no such job
      if (event.name === 'emails') return
    }
    queue.on('completed', completed)
    worker.on('completed', completed)
    queue.on('completed', (event) => {
      if (event.name === 'charge') expectTypeOf(event.result.receipt).toEqualTypeOf<string>()
    })
    queue.on('failed', ({ name }) => expectTypeOf(name).toEqualTypeOf<NameOf<typeof jobs>>())
    queue.on('progress', ({ name }) => expectTypeOf(name).toEqualTypeOf<NameOf<typeof jobs>>())
    queue.on('drained', ({ name }) => expectTypeOf(name).toEqualTypeOf<string>())
    untyped.on('completed', (event) => expectTypeOf(event).toEqualTypeOf<EventOf<'completed'>>())
    untyped.on('completed', ({ result }) => expectTypeOf(result).toEqualTypeOf<unknown>())
  })

  test('of a worker gives the job, by its name; an error may have none, and events of the worker have none', () => {
    worker.on('completed', (event) => {
      if (event.name === 'charge') expectTypeOf(event.job.returned).toEqualTypeOf<{ receipt: string } | undefined>()
      if (event.name === 'sweep') expectTypeOf(event.job.returned).toEqualTypeOf<number | undefined>()
    })
    worker.on('failed', ({ job: failed }) => expectTypeOf(failed.name).toEqualTypeOf<NameOf<typeof jobs>>())
    worker.on('lease-lost', ({ job: lost }) => expectTypeOf(lost).toEqualTypeOf<JobOf<typeof jobs>>())
    worker.on('error', ({ job: about }) => expectTypeOf(about).toEqualTypeOf<JobOf<typeof jobs> | undefined>())
    // @ts-expect-error it is about no job
    worker.on('worker-started', ({ job: none }) => none)
    // @ts-expect-error a queue has events of every process, without handles
    queue.on('failed', ({ job: none }) => none)
    const listener = (event: WorkerEventOf<'failed' | 'retrying'>): string => event.job.id
    new Worker(untyped, () => {}).on('retrying', listener)
  })

  test('takes listeners that know nothing of the jobs, on a queue of declared ones', () => {
    const plain: Listener<'completed'> = ({ result }) => result
    queue.on('completed', plain)
    worker.on('completed', plain)
    const own: Listener<'completed', typeof jobs> = (event) => event.name === 'charge' && event.result.receipt
    queue.on('completed', own)
    const both = (event: EventOf<'completed' | 'failed'>): unknown =>
      event.type === 'failed' ? event.error.message : event.result
    for (const type of ['completed', 'failed'] as const) queue.on(type, both)
    // @ts-expect-error that is of one job, and there are others
    queue.on('completed', (event: EventOf<'completed'> & { readonly name: 'charge' }) => event.name)
  })

  test('infers what the phases of declared jobs returned', () => {
    const films = new Queue('films', {
      store,
      jobs: defineJobs({
        film: job<void, string, string, readonly string[], { encode: { frames: number }; upload: string }>({
          phases: ['encode', 'upload'],
        }),
        plain: job<void, number>(),
      }),
    })
    films.on('phase', (event) => {
      if (event.name === 'plain') return expectTypeOf(event.phase).toEqualTypeOf<string>()
      if (event.phase === 'encode') expectTypeOf(event.result).toEqualTypeOf<{ frames: number } | undefined>()
      if (event.phase === 'upload') expectTypeOf(event.result).toEqualTypeOf<string | undefined>()
      // @ts-expect-error there is no such phase
      return event.phase === 'uplaod'
    })
    films.on('progress', (event) => {
      if (event.name === 'plain') return expectTypeOf(event.progress).toEqualTypeOf<unknown>()
      expectTypeOf(event.progress).toEqualTypeOf<number>()
      expectTypeOf(event.phase).toEqualTypeOf<'encode' | 'upload'>()
      return expectTypeOf(event.phaseProgress).toEqualTypeOf<number>()
    })
    const any = (each: Queue): Stop => each.on('phase', ({ result }) => expectTypeOf(result).toBeUnknown())
    any(films)
  })

  test('refuses events that do not exist, and payloads they do not have', () => {
    // @ts-expect-error it is `completed`
    queue.on('complete', () => {})
    // @ts-expect-error it is `failed`
    worker.on('failure', () => {})
    // @ts-expect-error that is an event of the queue
    worker.on('drained', () => {})
    // @ts-expect-error nothing has failed
    queue.on('completed', (event) => event.error)
    // @ts-expect-error there is no result yet
    worker.on('active', ({ result }) => result)
  })

  test('has a union of all events that narrows by type', () => {
    const read = (event: QueueEvent): unknown => (event.type === 'failed' ? event.error.message : event.at)
    void read
    expectTypeOf<QueueEvent['type']>().toEqualTypeOf<EventType>()
    expectTypeOf<Extract<QueueEvent, { type: 'stalled' }>>().toEqualTypeOf<EventOf<'stalled'>>()
  })
})

describe('isMillraceError', () => {
  test('narrows what was caught, and its code', () => {
    const caught: unknown = undefined
    if (isMillraceError(caught)) {
      expectTypeOf(caught).toExtend<MillraceError>()
      expectTypeOf(caught.code).toEqualTypeOf<ErrorCode>()
      // @ts-expect-error there is no such code
      void (caught.code === 'JOB_LOST')
    }
    if (isMillraceError(caught, 'JOB_FAILED')) {
      expectTypeOf(caught.code).toEqualTypeOf<'JOB_FAILED'>()
      expectTypeOf(caught.details).toEqualTypeOf<Readonly<Record<string, unknown>>>()
    }
    // @ts-expect-error there is no such code
    isMillraceError(caught, 'JOB_LOST')
  })
})
