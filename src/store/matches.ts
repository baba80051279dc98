// store/matches.ts: whether a job matches a query.
import type { JobRecord, Time } from '../job/job.js'
import { isFailing } from '../job/errors/fingerprint.js'
import { workerNameIn } from '../job/values/names.js'
import { tagsOf } from '../job/values/tags.js'
import { endStates } from './read-pages.js'
import type { Query, TimeRange } from './store.js'

/** Whether a job matches every field of a query. */
export function matches(job: JobRecord, query: Query): boolean {
  const { queue, states, names, chain, parent, group, kind } = query
  return (
    (queue === undefined || job.queue === queue) &&
    (states === undefined || states.includes(job.state)) &&
    (names === undefined || names.includes(job.name)) &&
    (chain === undefined || job.chainId === chain) &&
    (parent === undefined || job.parentId === parent) &&
    (group === undefined || job.group === group) &&
    (kind === undefined || job.kind === kind)
  )
}

/** The same, with the fields of filtered queries. */
export function matchesFiltered(job: JobRecord, query: Query): boolean {
  const { tags, anyTag, worker, idPrefix, errorCode, fingerprint } = query
  return (
    matches(job, query) &&
    (query.order !== 'finished' || endStates.includes(job.state)) &&
    (idPrefix === undefined || job.id.startsWith(idPrefix)) &&
    (tags === undefined || tags.every((tag) => tagsOf(job).includes(tag))) &&
    (anyTag === undefined || anyTag.some((tag) => tagsOf(job).includes(tag))) &&
    (worker === undefined || isOfWorker(job, worker)) &&
    isWithin(job.createdAt, query.created) &&
    isWithin(job.startedAt, query.started) &&
    isWithin(job.finishedAt, query.finished) &&
    (errorCode === undefined || (isFailing(job) && job.error?.code === errorCode)) &&
    (fingerprint === undefined || (isFailing(job) && job.error?.fingerprint === fingerprint))
  )
}

function isOfWorker({ worker }: JobRecord, wanted: string): boolean {
  return worker === wanted || (worker !== undefined && workerNameIn(worker) === wanted)
}

function isWithin(at: Time | undefined, range: TimeRange | undefined): boolean {
  if (range === undefined) return true
  const { from, to } = range
  return at !== undefined && (from === undefined || at >= from) && (to === undefined || at < to)
}
