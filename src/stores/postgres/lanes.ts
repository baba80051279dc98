// stores/postgres/lanes.ts: which lane a job belongs to, and the lanes that a batch adds jobs to.
import type { NewJob } from '../../job/change.js'
import type { Batch } from '../../store/store.js'

/** The ids of a lane and of its queue. */
export interface LaneRef {
  readonly lane: number
  readonly queue: number
}

/** The fields of a job that decide its lane. */
export type LaneFields = Pick<NewJob, 'queue' | 'name' | 'version' | 'group'>

/** Finds the ids of a job's lane; `undefined` while an open transaction is creating the lane. */
export type LaneFinder = (job: LaneFields) => LaneRef | undefined

/** Whether two jobs belong to the same lane. */
export function isSameLane(a: LaneFields, b: LaneFields): boolean {
  return (
    a.name === b.name &&
    a.queue === b.queue &&
    a.version === b.version &&
    (a.group === undefined) === (b.group === undefined)
  )
}

/** Jobs of a batch that name the lanes it adds to; a lane may appear more than once. */
export function newLanes(batch: Pick<Batch, 'groups'>): readonly NewJob[] {
  const jobs: NewJob[] = []
  let recent: NewJob | undefined
  for (const group of batch.groups) {
    for (const change of group) {
      if (change.kind !== 'insert') continue
      const { job } = change
      if (recent === undefined || !isSameLane(recent, job)) jobs.push((recent = job))
    }
  }
  return jobs
}

/** The ids of the lanes that a batch adds jobs to and of their queues, each lane once; lanes without an id are left out. */
export function lanesUsed(batch: Pick<Batch, 'groups'>, find: LaneFinder): readonly (readonly [number, number])[] {
  const used = new Map<number, number>()
  for (const job of newLanes(batch)) {
    const ref = find(job)
    if (ref !== undefined) used.set(ref.lane, ref.queue)
  }
  return [...used]
}
