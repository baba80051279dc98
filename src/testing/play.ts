// testing/play.ts: runs a script from beginning to end and has its history checked.
import type { JobRecord, Millis } from '../job/job.js'
import type { EventType, QueueEvent } from '../queue/events/events.js'
import type { Runtime } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import { scripted } from './script/acting.js'
import { checkHistory } from './check/checker.js'
import { PRODUCER } from './script/generate.js'
import type { Entry } from './check/history.js'
import type { Operation, Script } from './script/script.js'
import { Stage } from './world/stage.js'
import type { Actor, StageOptions } from './world/stage.js'
import { takeStep } from './script/steps.js'
import type { Rule, Violation } from './check/violation.js'
import { Operator } from './script/workload.js'

/** What a simulation came to. */
export interface SimulationReport {
  /** What it was run with: the same seed gives the same report. */
  readonly seed: number
  /** Whether every promise was kept. */
  readonly ok: boolean
  /** The promises that were broken, those that the checker saw first. */
  readonly violations: readonly Violation[]
  /** All that happened, a line each; equal for equal scripts, byte for byte. */
  readonly trace: readonly string[]
  /** How often each fault, operation and act occurred. */
  readonly counts: Readonly<Record<string, number>>
  /** Every job as it stood in the end. */
  readonly jobs: readonly JobRecord[]
  /** What was run. */
  readonly script: Script
  /** How long it took, in virtual milliseconds. */
  readonly took: Millis
}

/** What a script does not say. */
export interface RunScriptOptions {
  /** Makes the store that it happens on, in the world it is given; one for a single process. Default: one in memory. */
  readonly store?: (runtime: Runtime) => Store
  /** Comes between the store and everything else: a test breaks a rule here, to see that the checker notices. Default: nothing. */
  readonly wrap?: (store: Store) => Store
  /** Comes between each process and its line to the store, for rules that workers keep. Default: nothing. */
  readonly wrapLine?: (store: Store) => Store
}

/** How the simulation of somebody's own jobs differs from that of scripted ones. */
export interface Play {
  readonly script: Script
  readonly stage: Omit<StageOptions, 'seed' | 'settings' | 'faults'>
  /** How long jobs may take to end once nothing goes wrong. Default ten minutes. */
  readonly patience?: Millis
  /** Carries out the operations of the script. Default: nothing. */
  perform?(stage: Stage, step: Operation): void
  /** Undoes what would keep jobs from coming to their end; called once nothing goes wrong any more. */
  calm?(actor: Actor): void
  /** Begins with the producer; the simulation does not go quiet before it has ended. */
  produce?(producer: Actor): Promise<void>
  /** Judges how it ended; what it throws is a violation. */
  expect?(jobs: readonly JobRecord[]): void | Promise<void>
}

const PATIENCE: Millis = 600_000

const listened: readonly EventType[] = [
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
  let operator: Operator | undefined
  return play({
    script,
    stage: { handlers: (process, history) => scripted(process, history, runs, script.settings.batch), ...options },
    perform: (stage, step) => (operator ??= new Operator(stage)).perform(step),
    calm: ({ queues }) => {
      for (const queue of queues.values()) {
        for (const name of [undefined, 'even', 'odd']) void queue.resume(name).catch(() => {})
      }
    },
  })
}

/** Runs a script from beginning to end, and checks what happened. */
export async function play(whole: Play): Promise<SimulationReport> {
  const { script, expect } = whole
  const { seed, settings, faults } = script
  const stage = new Stage({ ...whole.stage, seed, settings, faults })
  const { history, timeline } = stage
  const extra: Violation[] = []
  const also = (rule: Rule, message: string): void =>
    void extra.push({ rule, time: timeline.time, id: undefined, message })
  const unheard = (reason: unknown): void => also('unhandled', textOf(reason))
  process.on('unhandledRejection', unheard)
  try {
    await stage.open()
    await goThrough(stage, whole, also)
    const quiet = history.entries.length
    await comeToRest(stage, whole)
    const seen = history.entries.length
    for (const name of idle(stage, history.entries.slice(quiet))) also('working', `${name} lives and asks for nothing.`)
    const { now } = stage
    const jobs = await stage.jobs()
    if (stage.spinning) also('spinning', 'It went on without end, and was cut off.')
    else if (!(await closeAll(stage))) also('closing', 'A worker or a queue did not close.')
    try {
      await expect?.(jobs)
    } catch (error) {
      also('expected', textOf(error))
    }
    const violations = [...checkHistory(history.entries.slice(0, seen), { now, jobs }, settings), ...extra]
    const { trace } = history
    const ok = violations.length === 0
    return { seed, ok, violations, trace, counts: history.counts(), jobs, script, took: timeline.time }
  } finally {
    await stage.tearDown()
    process.off('unhandledRejection', unheard)
  }
}

/** The part in which things go wrong. */
async function goThrough(stage: Stage, whole: Play, also: (rule: Rule, message: string) => void): Promise<void> {
  const { script, perform, produce, patience = PATIENCE } = whole
  const { history, timeline } = stage
  const producer = stage.spawn(PRODUCER, 'producer', 0)
  producer.process.sheltered = produce !== undefined
  for (const queue of producer.queues.values()) {
    const listener = (event: QueueEvent): void =>
      history.add({ kind: 'told', time: timeline.time, process: PRODUCER, event })
    for (const type of listened) queue.on(type as 'waiting', listener)
  }
  for (const step of script.steps) timeline.after(step.at, () => takeStep(stage, step, perform))

  let produced = produce === undefined
  const failed = (error: unknown): void => also('expected', `Producing failed: ${textOf(error)}`)
  void produce?.(producer)
    .catch(failed)
    .finally(() => (produced = true))
  const end = script.steps.reduce((latest, { at }) => Math.max(latest, at), 0)
  await stage.run(end + 1)
  await stage.run(end + patience, () => produced)
  if (!produced) also('expected', 'Producing did not end.')
}

/** From here on nothing goes wrong: everybody thaws, there is a worker that stays, and every job comes to its end. */
async function comeToRest(stage: Stage, { script, calm, patience = PATIENCE }: Play): Promise<void> {
  const { timeline, recorder } = stage
  const { lease, pollEvery } = script.settings
  stage.quiet = true
  stage.history.say('-', 'quiet from here on')
  for (const { process } of stage.actors.values()) {
    process.outageUntil = 0
    process.thaw()
  }
  const last = stage.spawn('last', 'worker', 0)
  // Those who thaw only now still do what they had begun.
  await stage.run(timeline.time + lease + 1000)
  calm?.(last)
  const latest = timeline.time + patience
  do {
    await stage.run(latest, () => recorder.unfinished.size === 0)
    // What is still under way lands, retention takes what it may, and listeners hear the last of it.
    await stage.run(timeline.time + Math.max(3 * lease, pollEvery) + 1000)
  } while (recorder.unfinished.size > 0 && timeline.time < latest && !stage.spinning)
}

/** Workers that live and have not asked for jobs, though there were slots for them. */
function idle({ actors }: Stage, entries: readonly Entry[]): readonly string[] {
  const asked = new Set<string>()
  for (const entry of entries) if (entry.kind === 'landing' && entry.batch.asks.length > 0) asked.add(entry.process)
  return [...actors.values()]
    .filter(({ process, worker }) => worker !== undefined && process.alive && !asked.has(process.name))
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
