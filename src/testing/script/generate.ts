// testing/script/generate.ts: generates a script from a seed.
import { overlaps } from '../../job/schedules/schedule-times.js'
import type { FailurePolicy, Millis } from '../../job/job.js'
import type { LimitOptions } from '../../queue/settings/limits.js'
import { generateActs, generateRuns, jobNames } from './generate-acts.js'
import { Random } from '../world/random.js'
import { commitFaults, hintFaults, jobsOfFlow, readFaults } from './script.js'
import { generateSteering } from './generate-steering.js'
import type {
  Act,
  Fault,
  FlowPlan,
  JobPlan,
  Operation,
  ProcessStep,
  SchedulePlan,
  Script,
  SimulationSettings,
  Step,
} from './script.js'

/** How many faults a simulation has. */
interface Severity {
  /** The share of calls that fail. */
  readonly calls: number
  /** About how often each worker process is frozen, killed, closed, paused or cut off during a script. */
  readonly processes: number
}

const severities: readonly Severity[] = [
  { calls: 0.01, processes: 1 },
  { calls: 0.04, processes: 3 },
  { calls: 0.1, processes: 6 },
]

/** The process that only produces, and listens to every event. It may be frozen, but never ends. */
export const PRODUCER = 'p0'

/** Generates the script of a seed. */
export function generateScript(seed: number): Script {
  const random = new Random(`script/${seed}`)
  const settings = generateSettings(random.fork('settings'))
  const severity = random.pick(severities)
  const span = random.between(5, 20) * settings.lease
  const processes = generateProcesses(random.fork('processes'), settings, severity, span)
  const names = [PRODUCER, ...processes.filter((step) => step.do === 'spawn').map((step) => step.process)]
  const operations = generateOperations(random.fork('operations'), settings, names, span)
  const schedules = generateSchedules(random.fork('schedules'), settings, names, span)
  const steering = generateSteering(random.fork('steering'), settings, names, span)
  return {
    seed,
    settings,
    steps: [...processes, ...operations, ...schedules, ...steering].toSorted((a, b) => a.at - b.at),
    faults: generateFaults(random.fork('faults'), names, settings.lease, severity.calls),
  }
}

/**
 * Generates a script without operations, for a user's own jobs. Commits of the producer may be late or lost, and are sent
 * again; it has no other faults, so that the code that produces need not handle the failure of every call.
 */
export function generateFaultScript(seed: number, settings: SimulationSettings, span: Millis, workers: number): Script {
  const random = new Random(`trouble/${seed}`)
  const severity = random.pick(severities)
  const processes = generateProcesses(random.fork('processes'), settings, severity, span, workers)
  const steps = processes.filter((step) => step.process !== PRODUCER)
  const names = [PRODUCER, ...steps.filter((step) => step.do === 'spawn').map((step) => step.process)]
  const faults = generateFaults(random.fork('faults'), names, settings.lease, severity.calls)
  const isAllowed = ({ process, on, kind }: Fault): boolean =>
    process !== PRODUCER || (on !== 'read' && kind !== 'cut-off')
  return { seed, settings, steps, faults: faults.filter(isAllowed) }
}

function generateSettings(random: Random): SimulationSettings {
  const lease = random.pick([600, 1500, 3000])
  return {
    queues: ['mail', 'work'],
    lease,
    concurrency: random.pick([1, 2, 5]),
    limit: random.chance(0.4) ? random.between(1, 3) : undefined,
    pollEvery: random.pick([500, 5000]),
    abandonAfter: random.pick([100, lease]),
    retention: random.chance(0.2) ? { staleAfter: lease, deleteAfter: 2 * lease } : undefined,
    latency: random.pick([1, 4, 20]),
    batch: random.chance(0.4) ? { size: random.pick([2, 4, 10]), wait: random.pick([0, 50, lease]) } : undefined,
  }
}

function generateProcesses(
  random: Random,
  { lease }: SimulationSettings,
  severity: Severity,
  span: Millis,
  workers: number = random.between(1, 3),
): readonly ProcessStep[] {
  const steps: ProcessStep[] = []
  const lives = new Map<string, number>()
  const running = new Map<string, string>()
  const spawn = (place: string, at: Millis): void => {
    const life = (lives.get(place) ?? 0) + 1
    lives.set(place, life)
    const process = life === 1 ? place : `${place}.${life}`
    running.set(place, process)
    steps.push({ at, do: 'spawn', process, skew: random.chance(0.3) ? random.between(-2 * lease, 2 * lease) : 0 })
  }
  for (let place = 1; place <= workers; place++) spawn(`w${place}`, random.between(0, lease))

  let at = 0
  const pace = span / (severity.processes * workers)
  while ((at += random.between(1, Math.ceil(2 * pace))) < span) {
    const place = random.pick([...lives.keys()])
    const process = running.get(place)!
    const what = random.weigh({ freeze: 5, rest: 1, outage: 3, blackout: 2, kill: 3, close: 2, producer: 1 })
    if (what === 'freeze') steps.push({ at, do: 'freeze', process, for: random.between(lease / 4, 3 * lease) })
    else if (what === 'rest') steps.push({ at, do: 'rest', process, for: random.between(1, 2 * lease) })
    else if (what === 'producer') steps.push({ at, do: 'freeze', process: PRODUCER, for: random.between(10, lease) })
    else if (what === 'outage') steps.push({ at, do: 'outage', process, for: random.between(50, 3 * lease) })
    else if (what === 'blackout')
      steps.push({ at, do: 'outage', process: undefined, for: random.between(50, 2 * lease) })
    else {
      if (what === 'kill') steps.push({ at, do: 'kill', process })
      else steps.push({ at, do: 'close', process, timeout: random.pick([0, lease / 2, 10 * lease]) })
      spawn(place, at + random.between(1, lease))
    }
  }
  return steps.toSorted((a, b) => a.at - b.at)
}

function generateFaults(random: Random, names: readonly string[], lease: Millis, rate: number): readonly Fault[] {
  const faults: Fault[] = []
  const delay = (from: Random): Millis =>
    from.chance(0.15) ? from.between(lease / 2, 2 * lease) : from.between(1, 200)
  for (const process of names) {
    for (const on of ['commit', 'read', 'hint'] as const) {
      const own = random.fork(`${process}/${on}`)
      let nth = 0
      while ((nth += own.between(1, Math.ceil(2 / rate))) < 400) {
        if (on === 'commit') {
          const kind = own.pick(commitFaults)
          const lasts = kind === 'cut-off' ? own.between(50, 2 * lease) : delay(own)
          faults.push({ on, kind, process, nth, delay: lasts })
        } else if (on === 'read') faults.push({ on, kind: own.pick(readFaults), process, nth, delay: delay(own) })
        else faults.push({ on, kind: own.pick(hintFaults), process, nth, delay: delay(own) })
      }
    }
  }
  return faults
}

function generateOperations(
  random: Random,
  settings: SimulationSettings,
  names: readonly string[],
  span: Millis,
): readonly Step[] {
  const steps: Operation[] = []
  let jobs = 0
  const job = (): JobPlan => generateJob(random, jobs++, settings)
  for (const queue of settings.queues) {
    if (!random.chance(0.3)) continue
    steps.push({
      at: random.between(0, span / 2),
      do: 'limit',
      process: PRODUCER,
      queue,
      limits: generateLimits(random, settings),
    })
  }
  const count = random.between(8, 45)
  for (let each = 0; each < count; each++) {
    const at = random.between(0, span)
    const process = random.chance(0.6) ? PRODUCER : random.pick(names)
    const queue = random.pick(settings.queues)
    const what = random.weigh({
      add: 50,
      addBulk: 8,
      flow: 6,
      cancel: 8,
      retry: 5,
      promote: 4,
      remove: 4,
      signal: 4,
      update: 4,
      pause: 2,
      all: 7,
    })
    if (what === 'add') {
      const wait = random.chance(0.4) ? random.pick([settings.lease, 1_000_000]) : undefined
      const plan = job()
      steps.push({ at, do: 'add', process, job: plan, wait })
      if (plan.runs.flat().some(({ act }) => act === 'await') && random.chance(0.7)) {
        steps.push({ at: at + random.between(0, 2 * settings.lease), do: 'signal', process: PRODUCER, job: plan.n })
      }
    } else if (what === 'addBulk') {
      const plans = Array.from({ length: random.between(2, 12) }, () => ({ ...job(), queue }))
      steps.push({ at, do: 'addBulk', process, jobs: plans })
    } else if (what === 'flow') {
      steps.push({ at, do: 'flow', process, flow: generateFlow(random, job, 2) })
    } else if (what === 'update') {
      const change = random.chance(0.5)
        ? { priority: random.between(-2, 2) }
        : { delay: random.between(0, settings.lease) }
      steps.push({ at, do: 'update', process, job: random.between(0, jobs), ...change })
    } else if (what === 'pause') {
      const name = random.chance(0.5) ? random.pick(jobNames) : undefined
      steps.push({ at, do: 'pause', process, queue, name })
      steps.push({ at: at + random.between(1, 2 * settings.lease), do: 'resume', process, queue, name })
    } else if (what === 'all') {
      steps.push({
        at,
        do: random.pick(['cancelAll', 'retryAll', 'retryFailed', 'retryFailed', 'promoteAll'] as const),
        process,
        queue,
      })
    } else steps.push({ at, do: what, process, job: random.between(0, jobs) })
  }
  return sortSteps(steps)
}

/** Uses few keys, so that schedules are replaced and removed as well as created. */
function generateSchedules(
  random: Random,
  { queues, lease }: SimulationSettings,
  names: readonly string[],
  span: Millis,
): readonly Operation[] {
  if (random.chance(0.5)) return []
  return Array.from({ length: random.between(1, 6) }, (): Operation => {
    const at = random.between(0, span / 2)
    const process = random.pick(names)
    const [queue, key] = [random.pick(queues), random.pick(['k1', 'k2'])]
    if (random.chance(0.15)) return { at, do: 'unschedule', process, queue, key }
    if (random.chance(0.3)) {
      return { at, do: random.pick(['trigger', 'pauseSchedule', 'resumeSchedule']), process, queue, key }
    }
    const acts = generateActs(random, lease).filter(({ act }) => act === 'sleep' || act === 'throw' || act === 'log')
    const plan: SchedulePlan = {
      key,
      queue,
      name: random.pick(jobNames),
      runs: [acts, []],
      every: random.pick([100, lease / 2, lease, 2 * lease]),
      limit: random.between(1, 12),
      catchUp: random.pick(['none', 'one', 'all']),
      overlap: random.pick(overlaps),
    }
    return { at, do: 'schedule', process, plan }
  })
}

/** Sorts steps by time and numbers their jobs in that order, so that the job that a step refers to mostly exists. */
function sortSteps(steps: readonly Operation[]): readonly Operation[] {
  const sorted = steps.toSorted((a, b) => a.at - b.at)
  const numbers = new Map<number, number>()
  for (const step of sorted) for (const { n } of jobsOf(step)) numbers.set(n, numbers.size)
  const renumber = (plan: JobPlan): JobPlan => {
    const n = numbers.get(plan.n)!
    const after = plan.after?.map((each) => ({ ...each, job: each.job % Math.max(1, n) }))
    return { ...plan, n, ...(after !== undefined && { after }) }
  }
  return sorted.map((step) => {
    if (step.do === 'add') return { ...step, job: renumber(step.job) }
    if (step.do === 'signal') return { ...step, job: numbers.get(step.job) ?? step.job }
    if (step.do === 'addBulk') return { ...step, jobs: step.jobs.map(renumber) }
    if (step.do === 'flow') return { ...step, flow: renumberFlow(step.flow, renumber) }
    return step
  })
}

function jobsOf(step: Operation): readonly JobPlan[] {
  if (step.do === 'add') return [step.job]
  if (step.do === 'addBulk') return step.jobs
  return step.do === 'flow' ? jobsOfFlow(step.flow) : []
}

function renumberFlow(flow: FlowPlan, renumber: (plan: JobPlan) => JobPlan): FlowPlan {
  const children = flow.children.map((child) => renumberFlow(child, renumber))
  return { ...flow, job: renumber(flow.job), children }
}

/** A small tree over all queues. */
function generateFlow(random: Random, job: () => JobPlan, depth: number): FlowPlan {
  const { dedup, ...plan } = job()
  const count = depth === 0 ? 0 : random.between(depth === 2 ? 1 : 0, 3)
  return {
    job: { ...plan, ...(dedup !== undefined && dedup.mode !== 'replace' && { dedup }) }, // flows do not support `replace`
    ...(random.chance(0.6) && { onFailure: random.pick(['fail', 'ignore', 'remove'] as const) }),
    ...(random.chance(0.4) && { cancelSiblings: true }),
    children: Array.from({ length: count }, () => generateFlow(random, job, depth - 1)),
  }
}

function generateJob(random: Random, n: number, { queues, lease }: SimulationSettings): JobPlan {
  const chance = (probability: number): boolean => random.chance(probability)
  const dedup = chance(0.25) ? generateDedup(random, lease) : undefined
  // A job that hangs needs its own timeout, and deduplication may give its data to a job with another one.
  const mayHang = dedup === undefined
  const runs = generateRuns(random, lease, { mayHang, links: 3 })
  const hangs = runs.flat().some((each) => each.act === 'hang')
  const plan: JobPlan = {
    n,
    queue: random.pick(queues),
    name: random.pick(jobNames),
    runs,
    backoff: random.between(1, lease),
    ...(chance(0.2) && { ownId: true }),
    ...(chance(0.3) && { priority: random.between(-2, 2) }),
    ...(chance(0.2) && { delay: random.between(1, 2 * lease) }),
    ...(chance(0.5) && { attempts: random.between(1, 5) }),
    ...(chance(0.3) ? { group: random.pick(['a', 'b', 'c']) } : chance(0.1) && { lifo: true }),
    ...((hangs || chance(0.1)) && { timeout: random.between(lease / 4, 2 * lease) }),
    ...(chance(0.15) && { removeOnComplete: random.pick([0, 1, lease]) }),
    ...(chance(0.1) && { removeOnFail: random.pick([0, lease]) }),
    ...(dedup !== undefined && { dedup }),
    ...(chance(0.3) && { after: Array.from({ length: random.between(1, 3) }, () => generateAfter(random)) }),
  }
  // Not by chance, so that the scripts of known seeds stay as they are otherwise.
  if (n % 8 === 5) return { ...plan, runs: [[holdOf(n, plan, lease)], ...plan.runs] }
  return n % 8 === 3 && plan.delay === undefined ? { ...plan, expires: 2 * lease } : plan
}

/** The first run of a job holds jobs like it. */
function holdOf(n: number, { group }: JobPlan, lease: Millis): Act {
  const of = group !== undefined ? 'group' : n % 16 === 5 ? 'name' : 'queue'
  return { act: 'hold', for: Math.ceil(lease / (1 + (n % 3))), of }
}

/** Limits under which every job can still finish. */
function generateLimits(random: Random, { lease }: SimulationSettings): LimitOptions {
  const rate = (): { max: number; per: Millis } => ({ max: random.between(2, 6), per: random.between(50, lease) })
  return {
    ...(random.chance(0.4) && { rate: rate() }),
    ...(random.chance(0.6) && {
      group: { concurrency: random.between(1, 2), ...(random.chance(0.5) && { rate: rate() }) },
    }),
    ...(random.chance(0.4) && { groups: { a: { weight: 3 }, b: { concurrency: 1 } } }),
  }
}

function generateDedup(random: Random, lease: Millis): NonNullable<JobPlan['dedup']> {
  const mode = random.pick(['keep', 'keep', 'replace', 'reject'] as const)
  const which = random.between(1, 3)
  return random.chance(0.3) ? { key: `window-${which}`, mode, window: 2 * lease } : { key: `key-${which}`, mode }
}

function generateAfter(random: Random): { readonly job: number; readonly onFailure: FailurePolicy } {
  return { job: random.between(0, 1000), onFailure: random.pick(['fail', 'fail', 'ignore', 'remove'] as const) }
}
