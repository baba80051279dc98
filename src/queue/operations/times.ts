// queue/operations/times.ts: reads the attempts, the steps and the timeline of a job.
import { ERRORS_KEPT } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { mustBe, whole } from '../../job/values/options.js'
import { attemptsOf, stepsOf, timelineOf } from '../../job/timeline.js'
import type { AttemptInfo, JobStep, Timeline } from '../../job/timeline.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { readDetails } from '../../store/read-pages.js'
import type { Time } from '../../job/job.js'
import type { Session } from '../../store/session.js'
import { readJob } from './decide.js'

/** Selects a page of a job's attempts. */
export interface HistoryOptions {
  /** Attempts after this one: the `fence` of the last attempt of the page before. Default: from the first kept. */
  readonly after?: number | undefined
  /** Maximum number of attempts, up to 50, which is how many a job keeps. Default 50. */
  readonly limit?: number
}

/** The attempts of a job, oldest first. */
export function* readAttempts(
  session: Session,
  id: string,
  options: HistoryOptions = {},
): Steps<readonly AttemptInfo[]> {
  refuseUnknown(options, ['after', 'limit'], 'job.history')
  const { after = -1, limit = ERRORS_KEPT } = options
  if (!Number.isSafeInteger(after)) throw mustBe('job.history: after', 'the fence of an attempt', after)
  const most = whole(limit, 'job.history: limit', 1, ERRORS_KEPT)
  const attempts = attemptsOf(yield* readJob(session, id))
  return attempts.filter(({ fence }) => fence > after).slice(0, most)
}

/** The steps of a job, in the order in which they first ended. */
export function* readSteps(session: Session, id: string): Steps<readonly JobStep[]> {
  yield* readJob(session, id)
  const [found] = yield* readDetails(session, { jobs: [id], parts: ['steps'] })
  return stepsOf(found?.steps ?? [])
}

/** The timeline of a job, up to `now`. Of very many steps, or very long lines, only the first are read. */
export function* readTimeline(session: Session, id: string, now: () => Time): Steps<Timeline> {
  const job = yield* readJob(session, id)
  const { jobs } = yield* step(session.details({ jobs: [id], parts: ['logs', 'steps', 'edges'], edges: { limit: 1 } }))
  const { logs = [], steps = [], edges = [], more } = jobs[0] ?? {}
  const cut = more?.logs !== undefined || more?.steps !== undefined
  return timelineOf(job, { logs, steps, cut, depends: edges.length > 0 }, now())
}
