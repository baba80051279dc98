// A program that works with one version of its jobs, as it was deployed.
import { Queue, Worker, defineJobs, job, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface VersionedInput {
  readonly path: string
  /** The version that it was written for: 1 has `to` as text, 2 as a list, and takes what was added under 1. */
  readonly version: 1 | 2
}

/** What the program sends. */
export type VersionedMessage =
  | { readonly kind: 'running' }
  | { readonly kind: 'ran'; readonly id: string; readonly version: number; readonly to: unknown }

const { path, version } = input() as VersionedInput
const jobs =
  version === 1
    ? defineJobs({ mail: job<{ to: unknown }>({ version }) })
    : defineJobs({
        mail: job<{ to: unknown }>({ version, upgrade: { 1: (old: { to: string }) => ({ to: [old.to] }) } }),
      })
const store = sqlite(path)
const queue = new Queue('work', { store, jobs, logger: false })
const worker = new Worker(
  queue,
  {
    mail: ({ id, version: added, data }) =>
      send({ kind: 'ran', id, version: added, to: data.to } satisfies VersionedMessage),
  },
  { concurrency: 5, logger: false, autorun: false },
)
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running' } satisfies VersionedMessage)
