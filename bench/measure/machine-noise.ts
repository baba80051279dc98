// Measures how busy other programs kept the machine during a run.
import { readFileSync } from 'node:fs'
import { cpus } from 'node:os'

/** The kernel counts processor time in hundredths of a second. */
const TICK = 10

/**
 * Starts to measure. The returned function gives the share of the machine, 0 to 1, that other programs used since.
 */
export function watchNoise(): () => number | undefined {
  const before = look()
  return () => {
    const after = look()
    if (before === undefined || after === undefined) return undefined
    return Math.max(0, after.busy - before.busy - (after.own - before.own)) / (after.all - before.all)
  }
}

/** Processor time in milliseconds: in total, what was used, and what this process and its children used of it. */
function look(): { readonly all: number; readonly busy: number; readonly own: number } | undefined {
  if (process.platform !== 'linux') return undefined
  let all = 0
  let idle = 0
  for (const { times } of cpus()) {
    all += times.user + times.nice + times.sys + times.irq + times.idle
    idle += times.idle
  }
  // After the name, which is in brackets and may hold anything, the times are fields 12 to 15.
  const fields = readFileSync('/proc/self/stat', 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')
  const own = fields.slice(11, 15).reduce((sum, field) => sum + Number(field) * TICK, 0)
  return { all, busy: all - idle, own }
}
