// server/store-protocol/rights.ts: what each role may ask of the store protocol, as the table in docs/http.md. The judge decides
// by its own code; a test sends each of these with each role.
import type { Role } from '../principal.js'

/** Whether a role may: `held` means jobs that a worker of the token holds, `own` workers of the token. */
type May = 'yes' | 'no' | 'held' | 'own'

/** One row of the table. */
export interface Right {
  /** What is asked. */
  readonly what: string
  readonly may: Readonly<Record<Role, May>>
}

const may = (read: May, produce: May, work: May): Right['may'] => ({ read, produce, work, admin: 'yes' })

/** What may be asked, by a short name. All of it in the queues of the token alone. */
export const rights = {
  get: {
    what: 'read jobs by id, what is stored beside them, and cells; be told of commits',
    may: may('yes', 'yes', 'yes'),
  },
  find: { what: 'find jobs, read counts', may: may('yes', 'no', 'yes') },
  insert: {
    what: 'add jobs and trees of them, with dependencies on jobs in scope',
    may: may('no', 'yes', 'yes'),
  },
  child: { what: 'add children of a job that stands, or go on with its chain', may: may('no', 'no', 'held') },
  replace: {
    what: 'replace data, priority and time of a job that holds a deduplication key and has not begun',
    may: may('no', 'yes', 'yes'),
  },
  drop: { what: 'drop the oldest job of a group that is full, where its limit says so', may: may('no', 'yes', 'yes') },
  signal: { what: 'send a signal to a job', may: may('no', 'yes', 'yes') },
  counts: { what: 'write new counts over time', may: may('no', 'yes', 'yes') },
  claim: { what: 'claim jobs', may: may('no', 'no', 'own') },
  renew: { what: 'renew leases', may: may('no', 'no', 'held') },
  settle: { what: 'settle jobs, and end their chains', may: may('no', 'no', 'held') },
  note: { what: 'write progress, logs and steps', may: may('no', 'no', 'held') },
  entry: { what: 'write the entry of a worker in the registry', may: may('no', 'no', 'own') },
  seed: { what: "set the first limit of a queue, as a worker's `maxGlobalConcurrency`", may: may('no', 'no', 'yes') },
  schedule: { what: 'add schedules', may: may('no', 'no', 'no') },
  move: { what: 'move, edit and remove jobs that others hold, or nobody', may: may('no', 'no', 'no') },
  settings: { what: 'pause, limit, retention, marks', may: may('no', 'no', 'no') },
} as const satisfies Readonly<Record<string, Right>>
