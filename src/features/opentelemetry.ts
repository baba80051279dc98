// features/opentelemetry.ts: the used part of the optional package @opentelemetry/api, and how it is loaded.
import { createRequire } from 'node:module'
import { cannotLoad } from '../store/packages.js'

/** Identifies a span. */
export interface SpanContext {
  readonly traceId: string
  readonly spanId: string
  readonly traceFlags: number
  readonly isRemote?: boolean
}

/** An OpenTelemetry context. */
type Context = object

/** Attributes of spans and measurements. */
export type Attributes = Record<string, string | number | boolean>

/** A span. */
export interface Span {
  spanContext(): SpanContext
  setAttribute(name: string, value: string): unknown
  setAttributes(attributes: Attributes): unknown
  setStatus(status: { code: number; message?: string }): unknown
  recordException(error: { name: string; message: string; stack?: string }): void
  end(at?: number): void
}

/** Creates spans. */
export interface Tracer {
  startSpan(
    name: string,
    options?: { kind?: number; startTime?: number; attributes?: Attributes; links?: { context: SpanContext }[] },
    context?: Context,
  ): Span
}

interface InstrumentOptions {
  readonly description: string
  readonly unit: string
  readonly advice?: { readonly explicitBucketBoundaries: number[] }
}

/** An instrument that is read by callbacks. */
export interface Observable {
  addCallback(callback: (result: { observe(value: number, attributes: Attributes): void }) => Promise<void>): void
  removeCallback(callback: (result: never) => Promise<void>): void
}

/** Creates instruments. */
export interface Meter {
  createCounter(name: string, settings: InstrumentOptions): { add(value: number, attributes: Attributes): void }
  createHistogram(name: string, settings: InstrumentOptions): { record(value: number, attributes: Attributes): void }
  createObservableGauge(name: string, settings: InstrumentOptions): Observable
}

/** The used part of the package. */
export interface Api {
  readonly trace: {
    getTracer(name: string): Tracer
    setSpan(context: Context, span: Span): Context
    setSpanContext(context: Context, span: SpanContext): Context
    getSpanContext(context: Context): SpanContext | undefined
  }
  readonly metrics: { getMeter(name: string): Meter }
  readonly context: { active(): Context; with<T>(context: Context, work: () => T): T }
  readonly SpanKind: { readonly PRODUCER: number; readonly CONSUMER: number }
  readonly SpanStatusCode: { readonly ERROR: number }
}

/**
 * Loads the package, if it is installed. `telemetry()` is synchronous, so it cannot use `import()` as other packages
 * do.
 */
export function openTelemetryApi(name = '@opentelemetry/api'): Api {
  try {
    return createRequire(import.meta.url)(name) as Api
  } catch (cause) {
    const instead = ` In a bundle, give it: telemetry({ api }) with import * as api from '${name}'.`
    throw cannotLoad({ name, neededBy: 'telemetry()', instead }, cause)
  }
}

const pattern = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/

/** A span context as W3C `traceparent`. */
export function formatTraceparent({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`
}

/** Parses a `traceparent`; undefined if it is invalid. */
export function parseTraceparent(text: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags] = pattern.exec(text ?? '') ?? []
  if (traceId === undefined || spanId === undefined || /^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined
  return { traceId, spanId, traceFlags: Number.parseInt(flags!, 16), isRemote: true }
}
