// Measures the memory of a whole worker process while it drains: a plain program on the built package.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Sample } from '../measure/measure.js'

/** Drains the `jobs` waiting in a database. The figures are `rss` (the peak) and `idle`, in MB, and `rate`. */
export async function resident(url: string, jobs: number): Promise<Sample> {
  const program = fileURLToPath(new URL('resident-memory-worker.mjs', import.meta.url))
  const built = new URL('../../dist/postgres.js', import.meta.url)
  if (!existsSync(built)) throw new Error('The package is not built, as this row needs it: npm run build.')
  // Without the compiler that runs the bench, whose memory would count.
  const { NODE_OPTIONS: _, ...env } = process.env
  const { stdout } = await promisify(execFile)(process.execPath, [program, url, String(jobs)], { env })
  return JSON.parse(stdout) as Sample
}
