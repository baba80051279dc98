// server/job-view.ts: a job as answers show it: the fields of a `Job`, with data, progress and result as the stored text.
import type { JobRecord } from '../job/job.js'
import { hasPhases, overallOf, phasesOf } from '../job/phases.js'
import { asJob, timeOfRun } from '../job/schedules/schedule.js'
import { publicWebhook } from '../queue/settings/webhook.js'
import { raw } from './json-text.js'

/** A job as an answer shows it, to be written by `jsonText`. Absent fields are left out; unlimited attempts are null. */
export type JobView = Readonly<Record<string, unknown>>

/** The view of a job. */
export function jobView(record: JobRecord): JobView {
  const job = asJob(record)
  const { state } = job
  const phased = hasPhases(job)
  return {
    id: job.id,
    queue: job.queue,
    name: job.name,
    version: job.version,
    state,
    data: raw(job.data),
    priority: job.priority,
    attempt: job.attempt,
    attempts: Number.isFinite(job.attempts) ? job.attempts : null,
    timeout: job.timeout,
    worker: job.worker,
    fence: job.fence,
    runAt: state === 'delayed' || state === 'waiting-children' ? job.runAt : undefined,
    expiresAt: job.expiresAt,
    leaseUntil: job.leaseUntil,
    stalls: job.stalls,
    chainId: job.chainId,
    chainIndex: job.chainIndex,
    parentId: job.parentId,
    group: job.group,
    tags: job.extras?.tags,
    scheduledAt: timeOfRun(job),
    pending: job.pending,
    dedup: job.dedup,
    phases: phased ? phasesOf(job) : undefined,
    progress: phased ? overallOf(job) : raw(job.progress),
    result: raw(job.result),
    error: job.error,
    errors: job.errors.length === 0 ? undefined : job.errors,
    webhook: publicWebhook(job),
    createdAt: job.createdAt,
    startedAt: job.startedAt,
    finishedAt: job.finishedAt,
    staleAt: job.staleAt,
    deleteAt: job.deleteAt,
  }
}
