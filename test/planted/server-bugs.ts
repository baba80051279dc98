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
    title: 'a failure is taken for one that was said before, whatever the worker had said',
    guarantee: 'once',
    file: 'src/server/working/settling.ts',
    find: "return outcome === 'retried' ? later : undefined",
    replace: 'return later',
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
]
