// server/reading/visible-queues.ts: the queues that a caller may know of.
import { isReserved } from '../../job/values/names.js'
import type { ServerParts } from '../parts.js'
import { inScope } from '../principal.js'
import type { Principal } from '../principal.js'

/** Whether a caller may know of a queue. */
export function isVisible(server: ServerParts, principal: Principal, queue: string): boolean {
  return !isReserved(queue) && inScope(principal, queue) && server.queues.serves(queue)
}

/** The names of the queues that the server serves and the caller's roles hold for, in order: those it was given, or all that were ever used. */
export async function visibleQueues(server: ServerParts, principal: Principal): Promise<readonly string[]> {
  await server.connection.ready()
  const names = server.queues.names ?? (await server.store.tally()).map(({ queue }) => queue)
  return names.filter((queue) => isVisible(server, principal, queue)).toSorted((a, b) => (a < b ? -1 : 1))
}
