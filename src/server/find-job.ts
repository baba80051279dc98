// server/find-job.ts: the job of a request, if its caller may know of it.
import type { JobRecord } from '../job/job.js'
import { isReserved } from '../job/values/names.js'
import { SIGNAL } from '../job/signals.js'
import { jobNotFound } from '../queue/operations/decide.js'
import type { ServerParts } from './parts.js'
import { inScope } from './principal.js'
import type { Principal } from './principal.js'

/**
 * The job with that id. A job in a queue that the server does not serve, or that the caller's roles do not hold for, is
 * answered as one that does not exist: JOB_NOT_FOUND.
 */
export async function findJob(server: ServerParts, principal: Principal, id: string): Promise<JobRecord> {
  await server.connection.ready()
  const job = await server.connection.reads.get(id)
  if (job === undefined || job.kind === SIGNAL || isReserved(job.queue)) throw jobNotFound(id)
  if (!inScope(principal, job.queue) || !server.queues.serves(job.queue)) throw jobNotFound(id)
  return job
}
