// testing/simulate.ts: simulates a user's own jobs and handlers under injected faults.
import { parseDuration } from '../job/values/duration.js'
import type { Duration } from '../job/values/duration.js'
import { MillraceError } from '../job/errors/errors.js'
import type { ErrorInfo, JobRecord, JobState, Millis } from '../job/job.js'
import { decodeJson } from '../job/values/json.js'
import { phasesOf } from '../job/phases.js'
import type { JobPhase } from '../job/phases.js'
import { refuseUnknown } from '../job/values/names.js'
import type { JobDefinitions, NameOf } from '../queue/define.js'
import type { Queue } from '../queue/queue.js'
import type { AnyJobs } from '../queue/queue-types.js'
import type { Runtime } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import type { Handling } from '../worker/handlers.js'
import type { WorkerOptions } from '../worker/options.js'
import { generateFaultScript } from './script/generate.js'
import type { AnyHandlers } from './world/observed.js'
import { play } from './play.js'
import type { SimulationReport } from './play.js'
import type { SimulatedProcess } from './world/process.js'
import type { Script } from './script/script.js'
import { eachSeed } from './seeds.js'
import type { SeedsOptions, SeedsReport } from './seeds.js'

/** A job at the end of a simulation. */
export interface SimulatedJob {
  /** Its id. */
  readonly id: string
  /** The name it was added under. */
  readonly name: string
  /** The state it ended in. */
  readonly state: JobState
  /** The data it was added with. */
  readonly data: unknown
  /** What its handler returned, if it completed. */
  readonly result: unknown
  /** Its phases by name, in their order; empty if it has none. */
  readonly phases: Readonly<Record<string, JobPhase>>
  /** Its last failure, if there was one. */
  readonly error: ErrorInfo | undefined
  /** Attempts that were started and not given back. */
  readonly attempt: number
  /** How often its lease expired. */
  readonly stalls: number
}

/** Options of a simulation. */
export interface SimulateOptions<Jobs extends JobDefinitions = AnyJobs> {
  /**
   * Creates the handlers of a worker, once for each process: their state is lost when it dies. Wait with `process.sleep`:
   * handlers must not wait in real time.
   */
  readonly handlers: (process: SimulatedProcess) => Handling<NameOf<Jobs>, Jobs>
  /** Adds the jobs. Its process is never killed, and its calls do not fail; the store may still be slow. */
  readonly produce: (queue: Queue<Jobs>, process: SimulatedProcess) => Promise<void>
  /** Checks the jobs after all of them have ended; an error that it throws fails the simulation. Default: no check. */
  readonly expect?: (jobs: readonly SimulatedJob[]) => void | Promise<void>
  /** The jobs that the queue accepts, from `defineJobs`. Default: any. */
  readonly jobs?: Jobs
  /** Creates a store for a single process, on the given runtime; it must not wait in real time. Default: one in memory. */
  readonly store?: (runtime: Runtime) => Store
  /** The queue's name. Default `simulated`. */
  readonly queue?: string
  /** Worker processes at a time. Default 3. */
  readonly workers?: number
  /** Options of each worker, such as `concurrency` (default here 2) and `lease` (default here 5 s). */
  readonly worker?: Omit<WorkerOptions<Jobs>, 'store' | 'jobs' | 'autorun' | 'logger' | 'batch'>
  /** How long faults are injected, in virtual time; then all jobs must end. Default one minute. */
  readonly lasts?: Duration
}

/** A user's jobs may have longer delays than scripted ones. */
const TIMEOUT: Millis = 86_400_000

/** Runs one simulation of your own jobs. The same seed (default 1) gives the same trace, byte for byte. */
export function simulate<Jobs extends JobDefinitions = AnyJobs>(
  options: SimulateOptions<Jobs> & { readonly seed?: number },
): Promise<SimulationReport> {
  check(options, ['seed'])
  return run(options, faultScript(options, options.seed ?? 1))
}

/** Simulates your own jobs for many seeds, and shrinks the faults of a failing one to those that are needed to fail. */
export function simulateSeeds<Jobs extends JobDefinitions = AnyJobs>(
  options: SimulateOptions<Jobs> & SeedsOptions,
): Promise<SeedsReport> {
  check(options, ['from', 'count', 'shrink', 'failures', 'progress'])
  return eachSeed(
    options,
    (seed) => faultScript(options, seed),
    (script) => run(options, script),
  )
}

/** Unknown options are refused: a misspelt `expect` would otherwise check nothing and pass. */
function check(options: object, more: readonly string[]): void {
  const known = ['handlers', 'produce', 'expect', 'jobs', 'store', 'queue', 'workers', 'worker', 'lasts', ...more]
  refuseUnknown(options, known, 'the simulation')
  for (const needed of ['handlers', 'produce']) {
    if (typeof (options as Readonly<Record<string, unknown>>)[needed] === 'function') continue
    throw new MillraceError('INVALID_OPTION', `A simulation needs the function ${needed}.`)
  }
  if ('batch' in ((options as { worker?: object }).worker ?? {})) {
    throw new MillraceError(
      'INVALID_OPTION',
      'In a simulation, pass batch handlers by name: { runBatch, batch: { size } }.',
    )
  }
}

function faultScript<Jobs extends JobDefinitions>(options: SimulateOptions<Jobs>, seed: number): Script {
  const { queue = 'simulated', workers = 3, worker = {}, lasts = 60_000 } = options
  const lease = parseDuration(worker.lease ?? 5_000, 'simulate: lease')
  const settings = {
    queues: [queue],
    lease,
    concurrency: worker.concurrency ?? 2,
    limit: worker.maxGlobalConcurrency,
    pollEvery: parseDuration(worker.pollEvery ?? 5_000, 'simulate: pollEvery'),
    abandonAfter: parseDuration(worker.abandonAfter ?? lease, 'simulate: abandonAfter'),
    retention: undefined,
    latency: 5,
  }
  return generateFaultScript(seed, settings, parseDuration(lasts, 'simulate: lasts'), workers)
}

function run<Jobs extends JobDefinitions>(options: SimulateOptions<Jobs>, script: Script): Promise<SimulationReport> {
  const { handlers, produce, expect, jobs, store, worker } = options
  return play({
    script,
    stage: {
      handlers: (process) => handlers(process) as unknown as AnyHandlers,
      ...(jobs && { jobs }),
      ...(store && { store }),
      ...(worker && { worker }),
    },
    timeout: TIMEOUT,
    unblock: ({ queues }) => {
      for (const queue of queues.values()) void endSchedules(queue).catch(() => {})
    },
    produce: ({ queues, process }) => produce([...queues.values()][0] as unknown as Queue<Jobs>, process),
    ...(expect && { expect: (records) => expect(records.filter(({ kind }) => kind === 'job').map(view)) }),
  })
}

/** Schedules never end, and a simulation must. */
async function endSchedules(queue: Queue): Promise<void> {
  for (const { key } of await queue.schedules()) await queue.unschedule(key)
}

function view(record: JobRecord): SimulatedJob {
  const { id, name, state, error, attempt, stalls } = record
  const parse = (text: string | undefined): unknown => (text === undefined ? undefined : decodeJson(text))
  const [data, result, phases] = [parse(record.data), parse(record.result), phasesOf(record)]
  return { id, name, state, data, result, phases, error, attempt, stalls }
}

/** A failed simulation as text: the broken rules, and the last lines of the trace up to the first of them. */
export function describeFailure({ seed, violations, trace }: SimulationReport, lines = 60): string {
  if (violations.length === 0) return `Seed ${seed}: no rule was broken.`
  const [first] = violations
  const broken = violations
    .slice(0, 10)
    .map(({ rule, id, message }) => `  ${rule}${id === undefined ? '' : ` ${id}`}: ${message}`)
  const until = trace.filter((line) => Number(line.slice(0, 11)) <= first!.time + 1)
  return [`Seed ${seed} failed:`, ...broken, '', 'The trace until then:', ...until.slice(-lines)].join('\n')
}
