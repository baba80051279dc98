// server/store-protocol/scope.ts: which queues a caller of the store protocol may know of, Millrace's own queues included.
import { bulkQueue } from '../../job/bulk.js'
import { isReserved } from '../../job/values/names.js'
import type { ServerParts } from '../parts.js'
import { allQueues, hasRole, inScope } from '../principal.js'
import type { Principal } from '../principal.js'
import { redactorFor } from '../reading/reveal.js'
import type { Redactor } from '../redact.js'

/** What a caller may know and change. */
export interface Scope {
  readonly principal: Principal
  /** Every queue of the store is in scope. */
  readonly everything: boolean
  /** Whether it may change everything in its queues. */
  readonly admin: boolean
  readonly works: boolean
  /** What the ids of its workers begin with, and the names of its writers. */
  readonly prefix: string
  /** Hides secrets from it; undefined: it sees what is stored. */
  readonly redactor: Redactor | undefined
  /** Whether a queue is in scope. */
  holds(queue: string): boolean
}

/** The prefix of the queues that hold bulk operations. */
const BULK = bulkQueue('')

/** The scope of a caller. */
export function scopeOf(server: Pick<ServerParts, 'queues' | 'redactor'>, principal: Principal): Scope {
  const { queues } = server
  const redactor = redactorFor(principal, server.redactor)
  const everything = allQueues(principal) && queues.names === undefined
  const known = new Map<string, boolean>()
  const decide = (queue: string): boolean => {
    // A pattern such as 'm*' must not hold for Millrace's own queues, which work on those of others.
    const about = queue.startsWith(BULK) ? queue.slice(BULK.length) : queue
    return !isReserved(about) && inScope(principal, about) && queues.serves(about)
  }
  return {
    principal,
    everything,
    admin: hasRole(principal, 'admin'),
    works: hasRole(principal, 'work'),
    prefix: `${principal.name}/`,
    redactor: redactor.hides ? redactor : undefined,
    holds(queue) {
      if (everything) return true
      let holds = known.get(queue)
      if (holds === undefined) known.set(queue, (holds = decide(queue)))
      return holds
    },
  }
}
