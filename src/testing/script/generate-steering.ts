// testing/script/generate-steering.ts: generates what operators do: holds, backfills of schedules, and bulk operations.
import { bulkActions } from '../../job/bulk.js'
import type { Millis } from '../../job/job.js'
import { overlaps } from '../../job/schedules/schedule-times.js'
import type { Random } from '../world/random.js'
import { jobNames } from './generate-acts.js'
import type { Operation, OperationPlan, SchedulePlan, SimulationSettings } from './script.js'

/** Some steps of operators, in half of all scripts. */
export function generateSteering(
  random: Random,
  settings: SimulationSettings,
  names: readonly string[],
  span: Millis,
): readonly Operation[] {
  if (random.chance(0.5)) return []
  const { queues, lease } = settings
  const steps: Operation[] = []
  let operations = 0
  for (let left = random.between(1, 6); left > 0; left--) {
    const at = random.between(0, span)
    const process = random.pick(names)
    const queue = random.pick(queues)
    const what = random.weigh({ hold: 3, backfill: 3, operate: 4 })
    if (what === 'hold') {
      const of = random.pick([{}, { name: random.pick(jobNames) }, { group: random.pick(['a', 'b']) }])
      const lasts = random.between(1, 2 * lease)
      steps.push({ at, do: 'hold', process, queue, of, for: lasts })
      if (random.chance(0.3)) {
        steps.push({ at: at + random.between(1, lasts), do: 'hold', process, queue, of, for: undefined })
      }
    } else if (what === 'backfill') {
      const overlap = random.pick(['queue', 'allow', undefined] as const)
      const key = random.pick(['k1', 'k2'])
      if (random.chance(0.7))
        steps.push({ at, do: 'schedule', process, plan: generateSchedule(random, queue, key, lease) })
      const back = random.between(lease, 4 * lease)
      steps.push({
        at: at + random.between(0, lease),
        do: 'backfill',
        process: random.pick(names),
        queue,
        key,
        back,
        overlap,
      })
    } else {
      const o = operations++
      steps.push({ at, do: 'operate', process, plan: generateOperation(random, o, queue, lease) })
      for (const change of ['pauseOperation', 'resumeOperation', 'cancelOperation'] as const) {
        if (!random.chance(0.3)) continue
        steps.push({ at: at + random.between(1, 2 * lease), do: change, process: random.pick(names), operation: o })
      }
    }
  }
  return steps
}

function generateSchedule(random: Random, queue: string, key: string, lease: Millis): SchedulePlan {
  return {
    key,
    queue,
    name: random.pick(jobNames),
    runs: [[]],
    every: random.pick([lease / 4, lease / 2]),
    limit: random.between(1, 12),
    catchUp: random.pick(['none', 'one', 'all']),
    overlap: random.pick(overlaps),
  }
}

function generateOperation(random: Random, o: number, queue: string, lease: Millis): OperationPlan {
  const action = random.pick(bulkActions)
  const name = random.pick(jobNames)
  const where = random.pick([{}, { name }, action === 'retry' ? { state: 'failed' as const } : { name }])
  return {
    o,
    queue,
    action,
    where,
    ...(random.chance(0.5) && { rate: { max: random.between(1, 4), per: random.between(50, lease) } }),
    ...(random.chance(0.5) && { wait: true }),
  }
}
