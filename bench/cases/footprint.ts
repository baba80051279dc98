// Measures how much memory a process uses while it drains, above the same process while idle.
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Mode } from '../measure/load.js'
import type { Sample } from '../measure/measure.js'
import type { Scratch } from '../measure/scratch-files.js'
import type { Backlog, Subject } from '../contenders/contender.js'

/** The argument of the measured process. */
export interface FootprintOptions {
  readonly subject: string
  /** `idle` is an empty file, `full` is the file to drain. */
  readonly idle: string
  readonly full: string
  readonly mode: Mode
  readonly backlog: Backlog
}

/** The figures are `above`, in MB, and `rate`. */
export async function footprint(
  subject: Subject,
  scratch: Scratch,
  mode: Mode,
  backlog: Backlog,
  full: string,
): Promise<Sample> {
  const idle = scratch.fresh()
  const options: FootprintOptions = { subject: subject.name, idle, full, mode, backlog }
  const other = fork(fileURLToPath(new URL('footprint-worker.ts', import.meta.url)), [JSON.stringify(options)])
  const sample = await new Promise<Sample>((resolve, reject) => {
    let received: Sample | undefined
    other.on('message', (word: Sample) => (received = word))
    other.once('error', reject)
    other.once('exit', (code) => {
      if (received === undefined) reject(new Error(`The other process ended with code ${code}.`))
      else resolve(received)
    })
  })
  scratch.drop(idle)
  scratch.drop(full)
  return sample
}
