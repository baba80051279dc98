// features/prometheus.ts: job counts and lifetime counters in the text format of Prometheus.
import { jobStates } from '../job/job.js'
import { isReserved, refuseUnknown } from '../job/names.js'
import { invalid } from '../job/options.js'
import { countsOf } from '../queue/counts.js'
import { Queue } from '../queue/queue.js'
import { sessionFor } from '../store/session.js'
import { connect } from '../store/connection.js'
import type { Store } from '../store/store.js'
import type { Lifetime, QueueTally } from '../store/tally.js'

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
 * lifetime counters, all as the store maintains them.
 *
 * ```ts
 * const metrics = prometheus(store)
 * createServer(async (_, response) => response.setHeader('content-type', metrics.contentType).end(await metrics()))
 * ```
 */
export function prometheus(source: Queue | Queue<never> | Store, options: PrometheusOptions = {}): PrometheusEndpoint {
  refuseUnknown(options, ['prefix', 'labels'], 'prometheus')
  const { prefix = 'millrace', labels = {} } = options
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
  const currentSession = sessionFor(connect(store))
  const scrape = async (): Promise<string> => {
    const tallies = await currentSession().tally(queue?.name)
    const own = tallies.filter((tally) => !isReserved(tally.queue))
    return textOf(own, prefix, labels)
  }
  return Object.assign(scrape, { contentType: 'text/plain; version=0.0.4; charset=utf-8' })
}

const own = new Set(['queue', 'name', 'state'])

type Sample = readonly [labels: Readonly<Record<string, string>>, value: number]

function textOf(tallies: readonly QueueTally[], prefix: string, labels: Readonly<Record<string, string>>): string {
  const lines: string[] = []
  const metric = (name: string, type: 'gauge' | 'counter', help: string, samples: readonly Sample[]): void => {
    lines.push(`# HELP ${prefix}_${name} ${help}`, `# TYPE ${prefix}_${name} ${type}`)
    for (const [sampleLabels, value] of samples) {
      const pairs = Object.entries({ ...labels, ...sampleLabels }).map(
        ([label, text]) => `${label}="${escapeLabel(text)}"`,
      )
      lines.push(`${prefix}_${name}{${pairs.join(',')}} ${value}`)
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
  return `${lines.join('\n')}\n`
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
}
