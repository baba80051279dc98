// queue/queue-checks.ts: checks the options of a queue.
import { DEFAULT_JSON_LIMIT } from '../job/json.js'
import { checkName, checkOwnName, refuseUnknown } from '../job/names.js'
import { invalid } from '../job/options.js'
import type { Store } from '../store/store.js'
import type { JobDefinitions } from './define.js'
import { checkDefaults, defaultOptionNames } from './add-options.js'
import type { JobDefaults } from './add-options.js'
import type { QueueOptions } from './queue-types.js'
import { checkWebhooks } from './settings/webhook.js'
import type { Webhooks } from './settings/webhook.js'

/** Marks a queue that Millrace itself makes. A symbol, so that no user sets it by accident. */
export const RESERVED: unique symbol = Symbol('reserved')

/** Returns the name of a queue if it is valid. */
export function checkQueueName(name: string, options: object): string {
  return RESERVED in (options ?? {}) ? checkName(name, 'queue name') : checkOwnName(name, 'queue name')
}

/** Throws unless the value is made by `telemetry()`. */
export function checkTelemetry(telemetry: { readonly process: unknown } | undefined, where: string): void {
  if (telemetry === undefined || typeof telemetry?.process === 'function') return
  throw invalid(`${where}: telemetry must be made by telemetry().`)
}

/** Throws if the options are invalid; returns those that have defaults. */
export function checkQueue<Jobs extends JobDefinitions, S extends Store>(
  name: string,
  options: QueueOptions<Jobs, S>,
): { readonly defaults: JobDefaults; readonly maxDataBytes: number; readonly webhooks: Webhooks | undefined } {
  if (typeof options !== 'object' || options === null || typeof options.store?.commit !== 'function') {
    throw invalid(`new Queue('${name}'): give it a store, as in { store: sqlite('jobs.db') }.`)
  }
  const known = ['store', 'jobs', 'defaults', 'retention', 'webhook', 'logger', 'telemetry', 'maxDataBytes']
  refuseUnknown(options, known, 'new Queue')
  const { defaults = {}, maxDataBytes = DEFAULT_JSON_LIMIT } = options
  if (!Number.isSafeInteger(maxDataBytes) || maxDataBytes < 1) {
    throw invalid('new Queue: maxDataBytes must be a whole number from 1 up.')
  }
  refuseUnknown(defaults, defaultOptionNames, 'new Queue: defaults')
  checkDefaults(defaults, 'new Queue: defaults')
  checkTelemetry(options.telemetry, 'new Queue')
  if (options.jobs !== undefined && (typeof options.jobs !== 'object' || Array.isArray(options.jobs))) {
    throw invalid('new Queue: jobs must be made by defineJobs.')
  }
  return { defaults, maxDataBytes, webhooks: checkWebhooks(options.webhook) }
}
