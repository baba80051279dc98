// features/prometheus.ts: job counts and lifetime counters in the text format of Prometheus.
import { jobStates } from '../job/job.js'
import { refuseUnknown } from '../job/values/names.js'
import { invalid } from '../job/values/options.js'
import { countsOf } from '../queue/counts.js'
import { readMonitored } from './monitored.js'
import type { Monitored } from './monitored.js'
import { SERIES_BUCKETS, readCounts } from '../job/series.js'
import type { SeriesHistogram } from '../job/series.js'
import { Queue } from '../queue/queue.js'
import { connect } from '../store/connection.js'
import type { Store } from '../store/store.js'
import type { Lifetime } from '../store/tally.js'

/** Options of `prometheus()`. */
export interface PrometheusOptions {
  /** The prefix of metric names. Default `millrace`. */
  readonly prefix?: string
  /** Labels added to all metrics. Default: none. */
  readonly labels?: Readonly<Record<string, string>>
}

/** Produces the response to a scrape. */
export interface PrometheusEndpoint {
  /** The text of all current metrics. */
  (): Promise<string>
  /** The media type of the text. */
  readonly contentType: string
}

const totals: readonly (readonly [keyof Lifetime, string])[] = [
  ['added', 'Jobs added since the queue was made.'],
  ['completed', 'Jobs completed since the queue was made.'],
  ['failed', 'Jobs that failed for good since the queue was made.'],
  ['cancelled', 'Jobs cancelled since the queue was made.'],
  ['retried', 'Attempts that failed and were followed by another since the queue was made.'],
  ['stalled', 'Leases that ran out since the queue was made.'],
]

/**
 * Makes a Prometheus endpoint for a queue, or for all queues of a store: jobs by queue, name and state, leases, and
 * lifetime counters, as the store maintains them; how late each queue is, its live workers, and how long jobs waited and
 * ran. A process without workers can serve them, so that a queue without workers is visible.
 *
 * ```ts
 * const metrics = prometheus(store)
 * createServer(async (_, response) => response.setHeader('content-type', metrics.contentType).end(await metrics()))
 * ```
 */
export function prometheus(source: Queue | Queue<never> | Store, options: PrometheusOptions = {}): PrometheusEndpoint {
  refuseUnknown(options, ['prefix', 'labels'], 'prometheus')
  const { prefix = DEFAULT_PREFIX, labels = {} } = options
  if (typeof prefix !== 'string' || !/^[a-zA-Z_:][\w:]*$/.test(prefix)) {
    throw invalid(`prometheus: a metric cannot begin with '${String(prefix)}'.`)
  }
  for (const label of Object.keys(labels)) {
    if (/^[a-zA-Z_]\w*$/.test(label) && !label.startsWith('__') && !own.has(label)) continue
    throw invalid(`prometheus: '${label}' cannot be a label, or is one already.`)
  }
  const queue = source instanceof Queue ? (source as Queue) : undefined
  const store = queue?.store ?? (source as Store)
  if (typeof store?.tally !== 'function') throw invalid('prometheus: give it a queue or a store.')
  const connection = connect(store)
  const scrape = async (): Promise<string> => {
    return textOf(await readMonitored(connection, queue?.name), prefix, labels)
  }
  return Object.assign(scrape, { contentType: METRICS_TYPE })
}

/** The media type of the text. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** The text of the metrics of some queues, with the default prefix. */
export function metricsText(monitored: readonly Monitored[]): string {
  return textOf(monitored, DEFAULT_PREFIX, {})
}

const DEFAULT_PREFIX = 'millrace'

const own = new Set(['queue', 'name', 'state', 'le'])

type Sample = readonly [labels: Readonly<Record<string, string>>, value: number]

function textOf(monitored: readonly Monitored[], prefix: string, labels: Readonly<Record<string, string>>): string {
  const tallies = monitored.map(({ tally }) => tally)
  const lines: string[] = []
  const metric = (name: string, type: 'gauge' | 'counter', help: string, samples: readonly Sample[]): void => {
    lines.push(`# HELP ${prefix}_${name} ${help}`, `# TYPE ${prefix}_${name} ${type}`)
    for (const [sampleLabels, value] of samples) {
      lines.push(`${prefix}_${name}{${labelPairs({ ...labels, ...sampleLabels })}} ${value}`)
    }
  }
  const jobs = tallies.flatMap((tally) =>
    Object.entries(countsOf(tally, []).names).flatMap(([name, counts]) =>
      jobStates.map((state): Sample => [{ queue: tally.queue, name, state }, counts[state]]),
    ),
  )
  const leases = tallies.flatMap(({ queue, leases: held }) =>
    Object.entries(held).map(([name, count]): Sample => [{ queue, name }, count]),
  )
  metric('jobs', 'gauge', 'Jobs in the queue, by name and state.', jobs)
  metric('leases', 'gauge', 'Leases that count against limits, by name.', leases)
  for (const [what, help] of totals) {
    const samples = tallies.map(({ queue, lifetime }): Sample => [{ queue }, lifetime[what]])
    metric(`jobs_${what}_total`, 'counter', help, samples)
  }
  for (const [name, help] of ages) {
    const samples = monitored.flatMap(({ tally, [name]: seconds }): Sample[] =>
      seconds === undefined ? [] : [[{ queue: tally.queue }, seconds]],
    )
    metric(metricOf[name], 'gauge', help, samples)
  }
  const waiting = monitored.flatMap(({ tally, oldestWaiting }) =>
    Object.entries(oldestWaiting).map(([name, seconds]): Sample => [{ queue: tally.queue, name }, seconds]),
  )
  metric(
    'oldest_waiting_seconds',
    'gauge',
    'How long the oldest waiting job has waited since it could be claimed.',
    waiting,
  )
  const workers = monitored.map(({ tally, workers: live }): Sample => [{ queue: tally.queue }, live])
  metric('workers', 'gauge', 'Live workers that claim from the queue.', workers)
  const slots = monitored.map(({ tally, slots: all }): Sample => [{ queue: tally.queue }, all])
  metric('slots', 'gauge', 'Handlers that the live workers of the queue can run at a time.', slots)
  const paused = monitored.map(({ tally, paused: whole }): Sample => [{ queue: tally.queue }, Number(whole)])
  metric('paused', 'gauge', 'Whether the whole queue is paused.', paused)
  for (const [which, help] of histograms) {
    lines.push(`# HELP ${prefix}_job_${which}_seconds ${help}`, `# TYPE ${prefix}_job_${which}_seconds histogram`)
    for (const { tally, total } of monitored) {
      for (const [name, counts] of total) {
        const sampleLabels = { ...labels, queue: tally.queue, ...(name !== '' && { name }) }
        lines.push(...histogramLines(`${prefix}_job_${which}_seconds`, sampleLabels, readCounts(counts)[which]))
      }
    }
  }
  return `${lines.join('\n')}\n`
}

/** Gauges of ages, which are absent where there is nothing of that kind. */
const ages = [
  ['overdue', 'How long the first delayed job is due without having been promoted.'],
  ['scheduleLag', 'How late the first due schedule is.'],
  ['upkeepLag', 'How long the first due row or expired lease has been due: how late upkeep is.'],
  ['longestRunning', 'How long the longest running job has run.'],
] as const

const metricOf = {
  overdue: 'overdue_seconds',
  scheduleLag: 'schedule_lag_seconds',
  upkeepLag: 'upkeep_lag_seconds',
  longestRunning: 'longest_running_seconds',
} as const

const histograms = [
  ['wait', 'How long jobs waited since they could be claimed.'],
  ['run', 'How long attempts ran that completed, failed or were to be retried.'],
] as const

/** The lines of one histogram, whose buckets count all times up to their bounds. */
function histogramLines(
  name: string,
  labels: Readonly<Record<string, string>>,
  { buckets, sum }: SeriesHistogram,
): readonly string[] {
  const pairs = labelPairs(labels)
  let count = 0
  const lines = buckets.map((n, at) => {
    count += n
    const bound = SERIES_BUCKETS[at]
    return `${name}_bucket{${pairs},le="${bound === undefined ? '+Inf' : bound / 1000}"} ${count}`
  })
  return [...lines, `${name}_sum{${pairs}} ${sum / 1000}`, `${name}_count{${pairs}} ${count}`]
}

function labelPairs(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([label, text]) => `${label}="${escapeLabel(text)}"`)
    .join(',')
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
}
