// What may be measured, by whom, and what logs are written to.
import type { Meter, Tracer } from '@opentelemetry/api'
import { Queue, Worker } from 'millrace'
import { prometheus, telemetry } from 'millrace/telemetry'
import type { Logger, PrometheusEndpoint, Telemetry } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { jobs, queue, store } from './jobs.js'

describe('telemetry', () => {
  test("takes OpenTelemetry's own tracers and meters, and goes to queues and workers", () => {
    const measured = telemetry({ tracer: {} as Tracer, meter: {} as Meter })
    expectTypeOf(measured).toEqualTypeOf<Telemetry>()
    expectTypeOf(telemetry).toBeCallableWith()
    new Queue('q', { store, jobs, telemetry: measured })
    new Worker('q', () => {}, { store, telemetry: measured })
    // @ts-expect-error a tracer makes spans
    telemetry({ tracer: { span: () => {} } })
    // @ts-expect-error it is made by `telemetry()`
    new Queue('q', { store, telemetry: {} as Tracer })
  })
})

describe('prometheus', () => {
  test('takes a queue, of whatever jobs, or a store', () => {
    expectTypeOf(prometheus(queue)).toEqualTypeOf<PrometheusEndpoint>()
    expectTypeOf(prometheus(store, { prefix: 'jobs', labels: { app: 'shop' } })()).resolves.toEqualTypeOf<string>()
    // @ts-expect-error labels are text
    prometheus(store, { labels: { n: 1 } })
  })
})

describe('a logger', () => {
  test('needs warn and error; debug and info are for those who want to read more', () => {
    expectTypeOf<Console>().toExtend<Logger>()
    expectTypeOf<{ warn(d: object, m: string): void; error(d: object, m: string): void }>().toExtend<Logger>()
    // @ts-expect-error it has nothing for errors
    new Queue('q', { store, logger: { debug: () => {}, info: () => {}, warn: () => {} } })
  })
})
