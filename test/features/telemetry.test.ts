// Telemetry, with the real SDK and its exporters in memory: spans, metrics, logs and the text for Prometheus.
import { SpanKind, SpanStatusCode, context, metrics as globalMetrics, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  AggregationTemporality,
} from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { FlowProducer, UnrecoverableError, Worker } from 'millrace'
import { prometheus, telemetry } from 'millrace/telemetry'
import type { Logger, Queue, Store, Telemetry } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { openTelemetryApi, parseTraceparent } from '../../src/features/opentelemetry.js'
import { kinds, stores, transacting } from '../stores.js'
import { drivers, freshFolder } from '../stores/sqlite/folder.js'
import { closing, event, gate, newQueue, newStore } from '../setup.js'

const make = stores()
const file = freshFolder()

/** Transactions that the queues know nothing of, as those of the user. */
function bound(store: Store): { transact: NonNullable<Store['transact']> } {
  return { transact: store.transact!.bind(store) }
}

/** Resolves when jobs were looked for outside of the transaction that is open, or that look waits for its end. */
async function looked(store: Store): Promise<void> {
  const read = store.get.bind(store)
  const done = gate()
  const look = vi.spyOn(store, 'get').mockImplementation((ids, tx) => {
    const answer = read(ids, tx)
    if (tx !== undefined) return answer
    if (store.can.share === 'process') done.open()
    else void answer.then(() => done.open())
    return answer
  })
  await done.promise
  look.mockRestore()
}

interface Lab {
  readonly measured: Telemetry
  spans(): readonly ReadableSpan[]
  /** The next span that has ended by that name. */
  span(name: string): ReadableSpan
  /** The sum, the count or the value of each series of a metric. */
  metric(name: string): Promise<readonly { readonly attributes: object; readonly value: number }[]>
}

/** An SDK of its own. `global`: registered, as most programs do, so that contexts are kept. */
function lab(global = true): Lab {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 1_000_000 })
  const meters = new MeterProvider({ readers: [reader] })
  if (global) {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
    trace.setGlobalTracerProvider(provider)
    globalMetrics.setGlobalMeterProvider(meters)
  }
  closing({ close: () => meters.shutdown() } as never)
  const measured = global
    ? telemetry()
    : telemetry({ tracer: provider.getTracer('own'), meter: meters.getMeter('own') })
  return {
    measured,
    spans: () => exporter.getFinishedSpans(),
    span: (name) => exporter.getFinishedSpans().findLast((each) => each.name === name)!,
    metric: async (name) => {
      metricExporter.reset()
      await reader.forceFlush()
      const all = metricExporter
        .getMetrics()
        .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((each) => each.metrics))
      return (all.findLast(({ descriptor }) => descriptor.name === name)?.dataPoints ?? []).map(
        ({ attributes, value }) => ({
          attributes,
          value: typeof value === 'number' ? value : (value as { count: number }).count,
        }),
      )
    },
  }
}

afterEach(() => {
  context.disable()
  trace.disable()
  globalMetrics.disable()
})

/** A worker that is measured, and what it does until a job of it has ended. */
function measuredWorker(
  queue: Queue,
  measured: Telemetry,
  handler: (job: { name: string; data: unknown }) => unknown,
  options: { workerName?: string } = {},
): Worker {
  return closing(new Worker(queue, handler as never, { logger: false, telemetry: measured, ...options }))
}

describe.each(kinds)('on %s', (kind) => {
  it('producer and consumer spans are linked through the stored trace context, by the messaging conventions', async () => {
    const { measured, span, metric } = lab()
    const store = await make(kind)
    const queue = newQueue({ store, telemetry: measured })
    const tracer = trace.getTracer('app')
    const added = await tracer.startActiveSpan('request', async (request) => {
      const job = await queue.add('email', { to: 'ann' })
      request.end()
      return job
    })
    const worker = measuredWorker(queue, measured, () => 'sent', { workerName: 'mail' })
    await added.result()
    await worker.close()
    const [request, sent, processed] = [span('request'), span('send work'), span('process work')]
    expect(sent.parentSpanContext?.spanId).toBe(request.spanContext().spanId)
    expect([sent.kind, processed.kind]).toEqual([SpanKind.PRODUCER, SpanKind.CONSUMER])
    expect(sent.attributes).toEqual({
      'messaging.system': 'millrace',
      'messaging.destination.name': 'work',
      'messaging.operation.name': 'send',
      'messaging.operation.type': 'send',
      'messaging.message.id': added.id,
      'millrace.job.name': 'email',
    })
    expect(processed.spanContext().traceId).toBe(sent.spanContext().traceId)
    expect(processed.parentSpanContext?.spanId).toBe(sent.spanContext().spanId)
    expect(processed.links.map((link) => link.context.spanId)).toEqual([sent.spanContext().spanId])
    expect(processed.attributes).toMatchObject({
      'messaging.system': 'millrace',
      'messaging.destination.name': 'work',
      'messaging.operation.type': 'process',
      'messaging.message.id': added.id,
      'messaging.client.id': worker.id,
      'millrace.worker.name': 'mail',
      'millrace.job.attempt': 1,
      'millrace.job.outcome': 'completed',
    })
    expect(processed.status.code).toBe(SpanStatusCode.UNSET)
    const of = { 'messaging.system': 'millrace', 'messaging.destination.name': 'work' }
    expect(await metric('messaging.client.sent.messages')).toMatchObject([{ attributes: of, value: 1 }])
    expect(await metric('messaging.client.consumed.messages')).toMatchObject([{ attributes: of, value: 1 }])
    expect(await metric('messaging.process.duration')).toMatchObject([{ attributes: of, value: 1 }])
    const gauges = (await metric('millrace.jobs')).filter(({ value }) => value > 0)
    expect(gauges).toEqual([{ attributes: { ...of, 'millrace.job.state': 'completed' }, value: 1 }])
  })
})

describe.each(kinds.filter((kind) => kind !== 'memory'))('in a transaction on %s', (kind) => {
  it('spans, metrics and logs wait for the commit, and are dropped when it rolls back', async () => {
    const { measured, spans, metric } = lab()
    const lines: string[] = []
    const logger: Logger = { debug: (_, line) => lines.push(line), warn: () => {}, error: () => {} }
    const queue = newQueue({ store: await make(kind), telemetry: measured, logger })
    await queue
      .transaction(async () => {
        await queue.add('rolled back')
        throw new Error('no')
      })
      .catch(() => {})
    expect([spans().length, lines, await metric('messaging.client.sent.messages')]).toEqual([0, [], []])
    await queue.transaction(async () => {
      await queue.add('a')
      await queue.addBulk([{ name: 'b' }, { name: 'c' }])
      expect([spans().length, lines]).toEqual([0, []])
    })
    expect(spans().map((span) => [span.name, span.attributes['messaging.batch.message_count']])).toEqual([
      ['send work', undefined],
      ['send work', 2],
    ])
    expect(lines).toEqual(['job added', 'job added', 'job added'])
    expect((await metric('messaging.client.sent.messages')).map(({ value }) => value)).toEqual([3])
  })
})

/** A queue that is measured and logged, and what was reported of it. */
function reporting(store: Store): Lab & {
  readonly queue: Queue
  readonly lines: string[]
  /** Resolves when so many lines were written. */
  written(count: number): Promise<void>
} {
  const made = lab()
  const lines: string[] = []
  let [wanted, reached] = [0, (): void => {}]
  const debug = (details: object, line: string): void => {
    lines.push(`${line}: ${(details as { name: string }).name}`)
    if (lines.length >= wanted) reached()
  }
  const logger: Logger = { debug, warn: () => {}, error: () => {} }
  const queue = newQueue({ store, telemetry: made.measured, logger })
  const written = (count: number): Promise<void> =>
    new Promise((resolve) => {
      ;[wanted, reached] = [count, resolve]
      if (lines.length >= count) resolve()
    })
  return { ...made, queue, lines, written }
}

/** What is thrown to roll back. */
const rollback = (): never => {
  throw new Error('rolled back')
}

describe.each(transacting)('in a transaction of the user on %s', (kind) => {
  it('spans, metrics and logs of an add leave after the commit, and never if it is rolled back', async () => {
    const { queue, spans, lines, metric, written } = reporting(await make(kind))
    const { transact } = bound(queue.store)
    await transact(async (tx) => {
      await queue.add('rolled back', 1, { tx })
      await queue.addBulk([{ name: 'rolled back' }, { name: 'rolled back' }], { tx })
      rollback()
    }).catch(() => {})
    await transact(async (tx) => {
      const added = await queue.add('a', 1, { tx })
      await queue.add('a', 1, { tx, id: added.id })
      await queue.addBulk([{ name: 'b' }, { name: 'c' }], { tx })
      await looked(queue.store)
      expect([spans().length, lines]).toEqual([0, []])
    })
    await written(4)
    // Whatever is left is looked for once more, and then dropped.
    await queue.close()
    expect(lines.toSorted()).toEqual(['job added: a', 'job added: b', 'job added: c', 'job stands already: a'])
    expect(spans().map(({ name }) => name)).toEqual(['send work', 'send work', 'send work'])
    expect(spans().every(({ status }) => status.code === SpanStatusCode.UNSET)).toBe(true)
    expect((await metric('messaging.client.sent.messages')).map(({ value }) => value)).toEqual([3])
  })

  it('a job that is added again after a rollback, by the same id, is reported once', async () => {
    const { queue, spans, lines } = reporting(await make(kind))
    const { transact } = bound(queue.store)
    const add = (end: () => void): Promise<void> =>
      transact(async (tx) => {
        await queue.add('n', 1, { tx, id: 'own' })
        end()
      })
    await add(rollback).catch(() => {})
    await add(() => {})
    await queue.close()
    expect([lines, spans().length]).toEqual([['job added: n'], 1])
  })

  it('a job that is gone before it was looked for is reported when a worker of this process was given it', async () => {
    const store = await make(kind)
    const { queue, lines, spans } = reporting(store)
    const read = store.get.bind(store)
    vi.spyOn(store, 'get').mockImplementation(async (ids, tx) =>
      tx === undefined ? ids.map(() => undefined) : read(ids, tx),
    )
    const known = gate<readonly string[]>()
    closing(new Worker(queue, () => known.open([...lines]), { logger: false }))
    await bound(store).transact(async (tx) => void (await queue.add('n', 1, { tx })))
    expect(await known.promise).toEqual(['job added: n'])
    expect(spans().map(({ name }) => name)).toEqual(['send work'])
  })

  it('what is added in chain.complete with that transaction waits for its commit', async () => {
    const store = await make(kind)
    const { queue, lines, written } = reporting(store)
    const { transact } = bound(store)
    const other = await newQueue({ store, name: 'other' }).add('approve')
    const completing = (end: () => void): Promise<void> =>
      transact(async (tx) => {
        await newQueue({ store, name: 'other' })
          .chain(other.id)
          .complete(({ complete }) => complete(async () => void (await queue.add('receipt'))), { tx })
        end()
      })
    await completing(rollback).catch(() => {})
    expect(lines).toEqual([])
    await completing(() => {})
    await written(1)
    await queue.close()
    expect(lines).toEqual(['job added: receipt'])
  })

  it('an add that is refused is reported at once, as a failure', async () => {
    const { queue, span } = reporting(await make(kind))
    await bound(queue.store)
      .transact(async (tx) => {
        await expect(queue.add('n', 1, { tx, attempts: 0 })).rejects.toMatchObject({ code: 'INVALID_ATTEMPTS' })
        expect(span('send work').status.code).toBe(SpanStatusCode.ERROR)
        rollback()
      })
      .catch(() => {})
  })
})

describe.each(drivers)('in a synchronous transaction on a handle of $name', ({ Driver }) => {
  it('the add is reported when the transaction was committed, and not when it was rolled back', async () => {
    const db = new Driver(file('own.db')) as unknown as { exec(sql: string): unknown; close(): unknown }
    const store = closing(sqlite(db as never))
    await store.open()
    const { queue, lines, written, spans } = reporting(store)
    for (const end of ['ROLLBACK', 'COMMIT']) {
      db.exec('BEGIN IMMEDIATE')
      const added = queue.add(end, 1, { tx: db })
      db.exec(end)
      await added
    }
    await written(1)
    await queue.close()
    expect([lines, spans().length]).toEqual([['job added: COMMIT'], 1])
    await store.close()
    db.close()
  })
})

describe.each(kinds.filter((kind) => kind !== 'memory'))('in ctx.complete on %s', (kind) => {
  it('an add in an attempt that rolled back is not reported, and an add of the next attempt is reported once', async () => {
    const { measured, spans } = lab()
    const store = await make(kind)
    const queue = newQueue({ store, telemetry: measured })
    const other = newQueue({ store, name: 'other', telemetry: measured })
    const worker = closing(
      new Worker(
        queue,
        async (job, ctx) => {
          await ctx.complete(async () => {
            await other.add('receipt')
            if (job.attempt === 1) throw new Error('not this time')
          })
        },
        { logger: false, telemetry: measured },
      ),
    )
    await (await queue.add('pay', 1, { backoff: 1 })).result()
    await worker.close()
    expect(spans().map(({ name }) => name)).toEqual(['send work', 'process work', 'send other', 'process work'])
    const [, failed, sent, processed] = spans()
    expect(failed!.attributes['millrace.job.outcome']).toBe('retrying')
    expect(sent!.parentSpanContext?.spanId).toBe(processed!.spanContext().spanId)
    expect((await other.counts()).waiting).toBe(1)
  })
})

describe('spans', () => {
  it('of attempts that failed have the type of the error, whether or not there is another attempt', async () => {
    const { measured, spans, metric } = lab()
    const queue = newQueue({ telemetry: measured })
    const worker = measuredWorker(queue, measured, ({ name }) => {
      if (name === 'fatal') throw new UnrecoverableError('never')
      throw Object.assign(new Error('not yet', { cause: new TypeError('the reason') }), { code: 'E_LATER' })
    })
    const retried = await queue.add('retried', 1, { attempts: 2, backoff: 1 })
    await retried.result().catch(() => {})
    await (await queue.add('fatal')).result().catch(() => {})
    await worker.close()
    const processed = spans().filter(({ name }) => name === 'process work')
    expect(
      processed.map(({ attributes, status }) => [
        attributes['millrace.job.outcome'],
        attributes['error.type'],
        status.code,
        status.message,
      ]),
    ).toEqual([
      ['retrying', 'E_LATER', SpanStatusCode.ERROR, 'not yet'],
      ['failed', 'E_LATER', SpanStatusCode.ERROR, 'not yet'],
      ['failed', 'UnrecoverableError', SpanStatusCode.ERROR, 'never'],
    ])
    expect(processed[0]!.events.map(({ name }) => name)).toEqual(['exception'])
    expect(processed[0]!.events[0]!.attributes?.['exception.stacktrace']).toContain(
      '\nCaused by: TypeError: the reason',
    )
    const errors = (await metric('messaging.process.duration')).map(({ attributes }) => attributes)
    expect(errors).toContainEqual(expect.objectContaining({ 'error.type': 'E_LATER', 'millrace.job.name': 'retried' }))
  })

  it('of a job whose lease was revoked record that, when the handler has ended', async () => {
    const { measured, spans } = lab()
    const queue = newQueue({ telemetry: measured })
    const [begun, open] = [gate(), gate()]
    const worker = measuredWorker(queue, measured, async () => {
      begun.open()
      await open.promise
    })
    const added = await queue.add('n')
    await begun.promise
    await added.cancel()
    expect(spans().filter(({ name }) => name === 'process work')).toEqual([])
    open.open()
    await worker.close()
    const span = spans().find(({ name }) => name === 'process work')
    expect(span!.attributes).toMatchObject({ 'millrace.job.outcome': 'lost', 'error.type': 'cancelled' })
  })

  it('carry on: what a handler adds, and what it begins, belongs to its own', async () => {
    const { measured, span, spans } = lab()
    const store: Store = newStore()
    const queue = newQueue({ store, telemetry: measured })
    const tracer = trace.getTracer('app')
    const worker = closing(
      new Worker(
        queue,
        async (job, ctx) => {
          if (job.name !== 'first') return
          tracer.startSpan('inside').end()
          await ctx.complete(({ continueWith }) => continueWith('second', 1))
        },
        { logger: false, telemetry: measured },
      ),
    )
    const added = await queue.add('first')
    await queue.chain(added.id).result()
    await worker.close()
    const [first, second] = spans().filter(({ name }) => name === 'process work')
    expect(span('inside').parentSpanContext?.spanId).toBe(first!.spanContext().spanId)
    expect(second!.parentSpanContext?.spanId).toBe(first!.spanContext().spanId)
    const flows = closing(new FlowProducer({ store, queues: [queue] }))
    await tracer.startActiveSpan('flow', async (flow) => {
      const { job } = await flows.add({ name: 'child', queueName: 'work', data: 1 })
      expect(parseTraceparent((await store.get([job.id]))[0]!.extras?.trace)?.spanId).toBe(flow.spanContext().spanId)
      flow.end()
    })
  })

  it('are linked without any registered provider: a tracer and a meter are enough', async () => {
    const { measured, span } = lab(false)
    const queue = newQueue({ telemetry: measured })
    const worker = measuredWorker(queue, measured, () => 1)
    await (await queue.add('n')).result()
    await worker.close()
    expect(span('process work').parentSpanContext?.spanId).toBe(span('send work').spanContext().spanId)
  })

  it('of refused adds record the refusal, and a duplicate is not counted', async () => {
    const { measured, span, metric } = lab()
    const queue = newQueue({ telemetry: measured })
    await queue.add('n', 1, { id: 'one' })
    await queue.add('n', 1, { id: 'one' })
    expect((await metric('messaging.client.sent.messages')).map(({ value }) => value)).toEqual([1])
    await expect(queue.add('n', 1, { attempts: 0 })).rejects.toMatchObject({ code: 'INVALID_ATTEMPTS' })
    expect(span('send work').attributes['error.type']).toBe('INVALID_ATTEMPTS')
  })

  it('count no schedule as a job that was sent, nor do lines of the log', async () => {
    const { measured, metric } = lab()
    const lines: string[] = []
    const logger = { debug: (_: object, message: string) => void lines.push(message), warn: () => {}, error: () => {} }
    const queue = newQueue({ telemetry: measured, logger })
    await queue.add('n', 1)
    await queue.add('n', 1, { repeat: { every: '1d' } })
    expect((await metric('messaging.client.sent.messages')).map(({ value }) => value)).toEqual([1])
    expect(lines).toEqual(['job added', 'schedule added'])
  })

  it('do not make a schedule another one', async () => {
    const { measured } = lab()
    const queue = newQueue({ telemetry: measured })
    const tracer = trace.getTracer('app')
    const say = async (): Promise<unknown> =>
      tracer.startActiveSpan('deploy', async () => {
        await queue.schedule('daily', { name: 'n', every: '1d', data: 1 })
        const { items } = await queue.store.find({ kind: 'schedule' })
        return [items[0]!.fence, items[0]!.data]
      })
    expect(await say()).toEqual(await say())
  })
})

it('a worker without telemetry, and a queue without, know nothing of traces', async () => {
  lab()
  const queue = newQueue()
  const added = await trace.getTracer('app').startActiveSpan('request', () => queue.add('n'))
  expect((await queue.store.get([added.id]))[0]!.extras).toBeUndefined()
})

describe('what cannot be', () => {
  it('a package that is missing is named, with what installs it', () => {
    expect(() => openTelemetryApi('@opentelemetry/not-there')).toThrow('npm install @opentelemetry/not-there')
  })

  it('a package that is given is used, and what is none is refused', () => {
    expect(() => telemetry({ api: openTelemetryApi() })).not.toThrow()
    expect(() => telemetry({ api: {} })).toThrow("import * as api from '@opentelemetry/api'")
  })

  it('options that measure nothing are refused', () => {
    expect(() => telemetry({ tracer: {} } as never)).toThrow('must be a Tracer')
    expect(() => telemetry({ meter: {} } as never)).toThrow('must be a Meter')
    expect(() => newQueue({ telemetry: {} as never })).toThrow('must be made by telemetry()')
    expect(() => new Worker('w', () => 1, { store: newStore(), telemetry: true as never })).toThrow('must be made by')
  })
})

describe('a logger with debug and info', () => {
  it('reads the life of jobs, once it is durable; one without reads nothing of it', async () => {
    const lines: [string, object, string][] = []
    const write =
      (level: string) =>
      (details: object, line: string): void =>
        void lines.push([level, details, line])
    const logger: Logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
    const queue = newQueue({ logger })
    const worker = closing(
      new Worker(
        queue,
        ({ name }) => {
          if (name === 'bad') throw new Error('not good')
        },
        { logger, autorun: false },
      ),
    )
    const failed = event(queue, 'failed')
    await queue.add('good', 1, { id: 'g' })
    await queue.add('bad', 1, { id: 'b', attempts: 2, backoff: 1 })
    await worker.run()
    await failed
    await worker.close()
    const about = (id: string): unknown =>
      lines.filter(([, details]) => (details as { id: string }).id === id).map(([level, , line]) => `${level}: ${line}`)
    expect(about('g')).toEqual(['debug: job added', 'debug: job claimed', 'debug: job completed'])
    expect(about('b')).toEqual([
      'debug: job added',
      'debug: job claimed',
      'info: job retrying',
      'debug: job claimed',
      'info: job failed',
    ])
    expect(lines.find(([, , line]) => line === 'job failed')![1]).toMatchObject({
      name: 'bad',
      queue: 'work',
      attempt: 2,
      err: { message: 'not good' },
    })
  })
})

describe('prometheus', () => {
  it('answers jobs by queue, name and state, leases and lifetime counters, as the format asks for', async () => {
    const store = newStore()
    const queue = newQueue({ store, name: 'say "hi"\\' })
    const other = newQueue({ store, name: 'other' })
    await queue.add('n')
    await other.add('m', 1, { delay: '1d' })
    const metrics = prometheus(store, { labels: { app: 'two\nlines' } })
    expect(metrics.contentType).toBe('text/plain; version=0.0.4; charset=utf-8')
    const text = await metrics()
    expect(text.endsWith('\n')).toBe(true)
    const lines = text.split('\n')
    expect(lines).toContain('# HELP millrace_jobs Jobs in the queue, by name and state.')
    expect(lines).toContain('# TYPE millrace_jobs gauge')
    expect(lines).toContain('millrace_jobs{app="two\\nlines",queue="say \\"hi\\"\\\\",name="n",state="waiting"} 1')
    expect(lines).toContain('millrace_jobs{app="two\\nlines",queue="say \\"hi\\"\\\\",name="n",state="failed"} 0')
    expect(lines).toContain('millrace_jobs{app="two\\nlines",queue="other",name="m",state="delayed"} 1')
    expect(lines).toContain('# TYPE millrace_jobs_added_total counter')
    expect(lines).toContain('millrace_jobs_added_total{app="two\\nlines",queue="other"} 1')
    for (const line of lines.slice(0, -1)) {
      expect(line).toMatch(/^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+\{([a-z]+="([^"\\]|\\["\\n])*",?)+\} \d+(\.\d+)?)$/)
    }
    const own = await prometheus(other, { prefix: 'jobs' })()
    expect(own).toContain('jobs_jobs_added_total{queue="other"} 1')
    expect(own).not.toContain('say')
  })

  it('refuses what no metric could be called', () => {
    expect(() => prometheus(newStore(), { prefix: '1st' })).toThrow("cannot begin with '1st'")
    expect(() => prometheus(newStore(), { labels: { queue: 'x' } })).toThrow("'queue' cannot be a label")
    expect(() => prometheus({} as never)).toThrow('give it a queue or a store')
  })
})
