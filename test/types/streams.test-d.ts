// What a stream takes and gives, what is observed, and how a worker recovers.
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Queue, Worker, eventStreamHeaders } from 'millrace'
import type {
  EventStream,
  EventStreamOptions,
  FinishedState,
  Job,
  JobField,
  JobState,
  ObserveFieldsOptions,
  ObserveOptions,
  Processes,
  Runtime,
  StateCounts,
  StreamEnd,
  StreamEventType,
  StreamSnapshot,
  WorkerOptions,
} from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue, store, untyped } from './jobs.js'

describe('eventStream', () => {
  test('is a web stream of bytes, fit for an answer', () => {
    expectTypeOf(queue.eventStream()).toEqualTypeOf<EventStream>()
    expectTypeOf(queue.eventStream()).toExtend<ReadableStream<Uint8Array>>()
    expectTypeOf(new Response(queue.eventStream(), { headers: eventStreamHeaders })).toEqualTypeOf<Response>()
    expectTypeOf(eventStreamHeaders['content-type']).toBeString()
  })

  test('can be piped into an answer of node:http, and read by `for await`', async () => {
    const response = {} as ServerResponse
    await pipeline(Readable.fromWeb(queue.eventStream()), response)
    await pipeline(queue.eventStream(), response)
    for await (const bytes of queue.eventStream()) expectTypeOf(bytes).toEqualTypeOf<Uint8Array>()
  })

  test('takes the headers of a request', () => {
    const request = new Request('http://localhost/events')
    queue.eventStream({ lastEventId: request.headers.get('last-event-id'), signal: request.signal })
    queue.eventStream({ snapshot: false, events: ['completed', 'failed', 'progress'], jobId: 'x', buffer: 10 })
    expectTypeOf<NonNullable<EventStreamOptions['events']>[number]>().toEqualTypeOf<StreamEventType>()
    queue.eventStream({ jobId: 'x', fields: ['state', 'progress'], end: false, counts: true, ping: '5s', retry: 100 })
    queue.eventStream({ ping: false })
    // @ts-expect-error there is no such field
    queue.eventStream({ jobId: 'x', fields: ['result'] })
    // @ts-expect-error it is `completed`
    queue.eventStream({ events: ['complete'] })
    // @ts-expect-error what goes wrong in a process stays there
    queue.eventStream({ events: ['error'] })
    // @ts-expect-error there is no such option
    queue.eventStream({ job: 'x' })
    // @ts-expect-error it is a number
    queue.eventStream({ buffer: '10' })
  })

  test('declares the content of a snapshot', () => {
    expectTypeOf<StreamSnapshot['counts']>().toEqualTypeOf<StateCounts | undefined>()
    expectTypeOf<StreamEnd['state']>().toEqualTypeOf<FinishedState | 'removed'>()
    expectTypeOf<StreamSnapshot['type']>().toEqualTypeOf<'snapshot'>()
  })
})

describe('observe', () => {
  test('gives handles typed by the name of the job', async () => {
    const charge = await queue.add('charge', { cents: 5 })
    for await (const seen of charge.observe()) {
      expectTypeOf(seen.data).toEqualTypeOf<{ cents: number }>()
      expectTypeOf(seen.returned).toEqualTypeOf<{ receipt: string } | undefined>()
      expectTypeOf(seen.name).toEqualTypeOf<'charge'>()
    }
    const loose = await untyped.add('anything')
    for await (const seen of loose.observe({ signal: new AbortController().signal })) {
      expectTypeOf(seen).toExtend<Job>()
      expectTypeOf(seen.data).toBeUnknown()
    }
    expectTypeOf<ObserveOptions>().toEqualTypeOf<{ readonly signal?: AbortSignal }>()
    for await (const seen of charge.observe({ fields: ['state', 'returned'] })) {
      expectTypeOf(seen.state).toEqualTypeOf<JobState | 'removed'>()
      expectTypeOf(seen.returned).toEqualTypeOf<{ receipt: string } | undefined>()
      // @ts-expect-error it was not asked for
      void seen.data
    }
    expectTypeOf<ObserveFieldsOptions<'id'>['fields']>().toEqualTypeOf<readonly 'id'[]>()
    expectTypeOf<JobField>().toExtend<keyof Job>()
    // @ts-expect-error there is no such field
    charge.observe({ fields: ['result'] })
    // @ts-expect-error it ends when the job does
    charge.observe({ timeout: '1m' })
  })
})

describe('recovery', () => {
  test('is to retry or to fail', () => {
    expectTypeOf<WorkerOptions['recovery']>().toEqualTypeOf<'retry' | 'fail' | undefined>()
    void new Worker(queue, { sweep: () => 5 }, { recovery: 'fail' })
    void new Worker(new Queue('q', { store }), () => {}, { recovery: 'retry' })
    // @ts-expect-error there is no third way
    void new Worker(queue, { sweep: () => 5 }, { recovery: 'wait' })
  })

  test('asks the runtime what is known of processes', () => {
    expectTypeOf<Runtime['processes']>().toEqualTypeOf<Processes | undefined>()
    expectTypeOf<ReturnType<Processes['gone']>>().toBeBoolean()
  })
})
