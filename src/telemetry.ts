// millrace/telemetry: spans and metrics by OpenTelemetry, and an endpoint for Prometheus.
export { telemetry } from './features/telemetry.js'
export type { TelemetryOptions, MeterLike, TracerLike } from './features/telemetry.js'
export { prometheus } from './features/prometheus.js'
export type { PrometheusEndpoint, PrometheusOptions } from './features/prometheus.js'
export type { Telemetry } from './queue/instrumentation.js'
