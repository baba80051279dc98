// testing/play.ts: runs a script from start to end and checks its history.
import type { JobRecord, Millis } from '../job/job.js'
import type { EventType, QueueEvent } from '../queue/events/events.js'
import type { Queue } from '../queue/queue.js'
import type { Runtime } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import { scripted } from './script/acting.js'
import { checkHistory } from './check/checker.js'
import { PRODUCER } from './script/generate.js'
import type { Entry } from './check/simulated-history.js'
import type { Operation, Script } from './script/script.js'
import { Stage } from './world/stage.js'
import type { Actor, StageOptions } from './world/stage.js'
import { takeStep } from './script/take-step.js'
import type { Rule, Violation } from './check/violation.js'
import { Operator } from './script/workload.js'

/** The result of a simulation. */
export interface SimulationReport {
  /** Its seed: the same seed gives the same report. */
  readonly seed: number
  /** Whether no rule was broken. */
  readonly ok: boolean
  /** The broken rules, in the order in which the checker found them. */
  readonly violations: readonly Violation[]
  /** Everything that happened, one line each; byte for byte the same for the same script. */
  readonly trace: readonly string[]
  /** How often each fault, operation and act occurred. */
  readonly counts: Readonly<Record<string, number>>
  /** Every job in its final state. */
  readonly jobs: readonly JobRecord[]
  /** The script that was run. */
  readonly script: Script
  /** How long it took, in milliseconds of virtual time. */
  readonly took: Millis
}

/** Options beside the script. */
export interface RunScriptOptions {
  /** Creates a store for a single process, on the given runtime; it must not wait in real time. Default: one in memory. */
  readonly store?: (runtime: Runtime) => Store
  /** Wraps the store: a test breaks a rule here, to see that the checker notices. Default: no wrapper. */
  readonly wrap?: (store: Store) => Store
  /** Wraps each process's connection to the store, to break rules that workers must keep. Default: no wrapper. */
  readonly wrapConnection?: (store: Store) => Store
  /** @deprecated Use `wrapConnection`. Default: no wrapper. */
  readonly wrapLine?: (store: Store) => Store
}

/** What differs between a simulation of scripted jobs and one of a user's own jobs. */
export interface PlayOptions {
  readonly script: Script
  readonly stage: Omit<StageOptions, 'seed' | 'settings' | 'faults'>
  /** How long jobs may take to end after the last fault. Default ten minutes. */
  readonly timeout?: Millis
  /** Performs the operations of the script. Default: nothing. */
  perform?(stage: Stage, step: Operation): void
  /** Undoes what would keep jobs from ending, such as pauses; called after the last fault. */
  unblock?(actor: Actor): void
  /** Starts with the producer process; faults go on until it has ended. */
  produce?(producer: Actor): Promise<void>
  /** Checks the final jobs; an error that it throws is a violation. */
  expect?(jobs: readonly JobRecord[]): void | Promise<void>
}

const TIMEOUT: Millis = 600_000

const recordedEvents: readonly EventType[] = [
  'waiting',
  'waiting-children',
  'delayed',
  'active',
  'progress',
  'completed',
  'failed',
  'retrying',
  'stalled',
  'cancelled',
  'removed',
  'stale',
]

/** Runs a script of scripted jobs. */
export function runScript(script: Script, options: RunScriptOptions = {}): Promise<SimulationReport> {
  const runs = new Map<string, number>()
  const { wrapLine, wrapConnection = wrapLine, ...rest } = options
  let operator: Operator | undefined
  return play({
    script,
    stage: {
      handlers: (process, history) => scripted(process, history, runs, script.settings.batch),
      ...(wrapConnection && { wrapConnection }),
      ...rest,
    },
    perform: (stage, step) => (operator ??= new Operator(stage)).perform(step),
    unblock: ({ queues }) => {
      for (const queue of queues.values()) {
        void resumeSchedules(queue).catch(() => {})
        void resumeOperations(queue).catch(() => {})
      }
      for (const queue of queues.values()) {
        for (const name of [undefined, 'even', 'odd']) void queue.resume(name).catch(() => {})
      }
    },
  })
}

/** Runs a script from start to end, and checks its history. */
export async function play(options: PlayOptions): Promise<SimulationReport> {
  const { script, expect } = options
  const { seed, settings, faults } = script
  const stage = new Stage({ ...options.stage, seed, settings, faults })
  const { history, timeline } = stage
  const otherViolations: Violation[] = []
  const report = (rule: Rule, message: string): void =>
    void otherViolations.push({ rule, time: timeline.time, id: undefined, message })
  const onUnhandled = (reason: unknown): void => report('unhandled', textOf(reason))
  process.on('unhandledRejection', onUnhandled)
  try {
    await stage.open()
    await runWithFaults(stage, options, report)
    const faultsEnd = history.entries.length
    await runToEnd(stage, options)
    const historyEnd = history.entries.length
    for (const name of idle(stage, history.entries.slice(faultsEnd)))
      report('working', `${name} is alive and does not claim.`)
    const { now } = stage
    const jobs = await stage.jobs()
    if (stage.spinning) report('spinning', 'It looped without waiting, and was stopped.')
    else if (!(await closeAll(stage))) report('closing', 'A worker or a queue did not close.')
    try {
      await expect?.(jobs)
    } catch (error) {
      report('expected', textOf(error))
    }
    const violations = [
      ...checkHistory(history.entries.slice(0, historyEnd), { now, jobs }, settings),
      ...otherViolations,
    ]
    const { trace } = history
    const ok = violations.length === 0
    return { seed, ok, violations, trace, counts: history.counts(), jobs, script, took: timeline.time }
  } finally {
    await stage.tearDown()
    process.off('unhandledRejection', onUnhandled)
  }
}

/** Runs the steps of the script, with faults. */
async function runWithFaults(
  stage: Stage,
  options: PlayOptions,
  report: (rule: Rule, message: string) => void,
): Promise<void> {
  const { script, perform, produce, timeout = TIMEOUT } = options
  const { history, timeline } = stage
  const producer = stage.spawn(PRODUCER, 'producer', 0)
  producer.process.exemptFromOutages = produce !== undefined
  for (const queue of producer.queues.values()) {
    const listener = (event: QueueEvent): void =>
      history.add({ kind: 'event', time: timeline.time, process: PRODUCER, event })
    for (const type of recordedEvents) queue.on(type as 'waiting', listener)
  }
  for (const step of script.steps) timeline.after(step.at, () => takeStep(stage, step, perform))

  let produced = produce === undefined
  const failed = (error: unknown): void => report('expected', `Producing failed: ${textOf(error)}`)
  void produce?.(producer)
    .catch(failed)
    .finally(() => (produced = true))
  const end = script.steps.reduce((latest, { at }) => Math.max(latest, at), 0)
  await stage.run(end + 1)
  await stage.run(end + timeout, () => produced)
  if (!produced) report('expected', 'Producing did not end.')
}

/** A paused schedule never ends, and a simulation must. */
async function resumeSchedules(queue: Queue): Promise<void> {
  for (const { key, state } of await queue.schedules()) if (state === 'paused') await queue.schedule(key).resume()
}

/** Nor does an operation that is paused. */
async function resumeOperations(queue: Queue): Promise<void> {
  const { operations } = await queue.operations({ limit: 1000 })
  for (const operation of operations) if (operation.state === 'paused') await operation.resume()
}

/** Runs without faults until every job has ended: all processes thaw, and one more worker starts, which stays. */
async function runToEnd(stage: Stage, { script, unblock, timeout = TIMEOUT }: PlayOptions): Promise<void> {
  const { timeline, recorder } = stage
  const { lease, pollEvery } = script.settings
  stage.quiet = true
  stage.history.writeTrace('-', 'no more faults')
  for (const { process } of stage.actors.values()) {
    process.outageUntil = 0
    process.thaw()
  }
  const last = stage.spawn('last', 'worker', 0)
  // Processes that thaw only now first finish the work that they had started.
  await stage.run(timeline.time + lease + 1000)
  unblock?.(last)
  const latest = timeline.time + timeout
  do {
    await stage.run(latest, () => recorder.unfinished.size === 0)
    // Pending commits are applied, retention removes what it may, and listeners receive the last events.
    await stage.run(timeline.time + Math.max(3 * lease, pollEvery) + 1000)
  } while (recorder.unfinished.size > 0 && timeline.time < latest && !stage.spinning)
}

/** Live workers that have not claimed since, though they had free slots. */
function idle({ actors }: Stage, entries: readonly Entry[]): readonly string[] {
  const claimed = new Set<string>()
  for (const entry of entries) if (entry.kind === 'landing' && entry.batch.asks.length > 0) claimed.add(entry.process)
  return [...actors.values()]
    .filter(({ process, worker }) => worker !== undefined && process.alive && !claimed.has(process.name))
    .map(({ process }) => process.name)
}

async function closeAll(stage: Stage): Promise<boolean> {
  const open = new Set([...stage.actors.values()].filter(({ process }) => process.alive))
  for (const actor of open) void stage.close(actor, 1000).then(() => open.delete(actor))
  await stage.run(stage.timeline.time + 120_000, () => open.size === 0)
  return open.size === 0
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
