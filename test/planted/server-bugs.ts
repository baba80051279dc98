// Bugs in the server: what workers over HTTP are told, and what they may settle.
import type { Bug } from './bug.js'

export const serverBugs: readonly Bug[] = [
  {
    title: 'a token settles the job of another token',
    guarantee: 'once',
    file: 'src/server/working/held-jobs.ts',
    find: "if (!isOwnWorker(principal, record.worker)) throw lostLease(record, ['lease-lost'])",
    replace: '',
  },
  {
    title: 'a worker whose lease expired is told that it had settled the job',
    guarantee: 'once',
    file: 'src/job/history.ts',
    find: "new Set(['failed', 'retried', 'snoozed', 'handed-back'])",
    replace: "new Set(['failed', 'retried', 'snoozed', 'handed-back', 'stalled'])",
    unit: ['test/server/routes/settling.test.ts'],
  },
  {
    title: 'the jobs of a claim whose client has gone stay leased',
    guarantee: 'crash',
    file: 'src/server/working/waiting.ts',
    find: 'if (waiter.ended || signal.aborted) this.#handBack(held)',
    replace: 'if (waiter.ended) this.#handBack(held)',
  },
  {
    title: 'a key counts for all tokens',
    guarantee: 'once',
    file: 'src/server/producing/idempotency.ts',
    find: 'JSON.stringify([caller, queue, key, index])',
    replace: "JSON.stringify([caller === '' ? '' : 'any', queue, key, index])",
  },
  {
    title: 'the server does not learn of the end of a lease that it gave',
    guarantee: 'crash',
    file: 'src/server/working/claiming.ts',
    find: 'server.working.upkeep.expect(record.queue, record.leaseUntil!)',
    replace: '',
  },
]
