// Measures how soon a job starts on an idle queue, within a process and in another one.
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { percentile } from '../measure/measure.js'
import type { Sample } from '../measure/measure.js'
import type { Mode } from '../measure/load.js'
import type { Places } from '../measure/scratch-files.js'
import type { Session, Subject } from '../contenders/contender.js'

/**
 * The pause between two jobs, in milliseconds: long enough to be idle, and random, so that no poll is in step.
 */
const STILL = { least: 5, most: 15 }

/** A clock that all processes of a machine share, in milliseconds. */
export const clock = (): number => Number(process.hrtime.bigint()) / 1e6

/** A message of the other process. */
export type Message = { readonly kind: 'ready' } | { readonly kind: 'started'; readonly n: number; readonly at: number }

const still = (): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, STILL.least + Math.random() * (STILL.most - STILL.least))
  })

/** Adds single jobs and records when each of them started. */
class Probe {
  readonly #starts = new Map<number, number[]>()
  #onStart: (() => void) | undefined

  started(n: number, at: number): void {
    const known = this.#starts.get(n)
    if (known === undefined) this.#starts.set(n, [at])
    else known.push(at)
    this.#onStart?.()
  }

  async run(session: Session, jobs: number): Promise<Sample> {
    const times: number[] = []
    let lost = 0
    for (let n = 0; n < jobs; n++) {
      await still()
      const hasStarted = new Promise<void>((resolve) => (this.#onStart = resolve))
      const begun = clock()
      const added = session.add(n)
      await Promise.race([hasStarted, timeLimit()])
      await added
      const at = this.#starts.get(n)?.[0]
      if (at === undefined) lost++
      else times.push(at - begun)
    }
    await still()
    const doubled = [...this.#starts.values()].filter((starts) => starts.length > 1).length
    return { figures: { p50: percentile(times, 0.5), p99: percentile(times, 0.99) }, lost, doubled }
  }
}

/** Ends after ten seconds, and does not keep the process running. */
const timeLimit = (): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, 10_000).unref()
  })

/** Adds and works in this process. The figures are `p50` and `p99`, in milliseconds. */
export async function latencyWithin(subject: Subject, places: Places, mode: Mode, jobs: number): Promise<Sample> {
  const path = await places.fresh()
  const session = await subject.open(path, mode)
  const probe = new Probe()
  await session.work((n) => probe.started(n, clock()))
  const sample = await probe.run(session, jobs)
  await session.close()
  await places.drop(path)
  return sample
}

/** Adds in this process, and works in another one. */
export async function latencyBetween(subject: Subject, places: Places, mode: Mode, jobs: number): Promise<Sample> {
  const path = await places.fresh()
  const session = await subject.open(path, mode)
  const probe = new Probe()
  const other = fork(fileURLToPath(new URL('latency-worker.ts', import.meta.url)), [subject.name, path, mode])
  const ended = new Promise<number | null>((resolve) => other.once('exit', resolve))
  const died = ended.then((code) => Promise.reject(new Error(`The other process ended with code ${code}.`)))
  died.catch(() => {}) // expected in the end
  const ready = new Promise<void>((resolve) => {
    other.on('message', (message: Message) => {
      if (message.kind === 'started') probe.started(message.n, message.at)
      else resolve()
    })
  })
  try {
    await Promise.race([ready, died])
    return await Promise.race([probe.run(session, jobs), died])
  } finally {
    if (other.connected) other.disconnect() // ends the other process
    await ended
    await session.close()
    await places.drop(path)
  }
}
