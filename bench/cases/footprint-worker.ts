// The process whose memory is measured: it idles on an empty file, drains a full one, and reports its memory.
import { readFileSync, writeFileSync } from 'node:fs'
import type { FootprintOptions } from './footprint.js'
import type { Sample } from '../measure/measure.js'
import { subjectNamed } from '../contenders/by-name.js'

const MB = 1024 * 1024
const options = JSON.parse(process.argv[2] ?? '') as FootprintOptions
const subject = await subjectNamed(options.subject, options.full)

const session = await subject.open(options.idle, options.mode)
await session.work(() => {})
await new Promise((resolve) => setTimeout(resolve, 500))
globalThis.gc?.()
const idle = process.memoryUsage.rss()
await session.close()

forgetPeak()
const {
  figures,
  lost = 0,
  doubled = 0,
} = await subject.drain(
  options.full,
  { mode: options.mode, weight: options.backlog.weight, count: options.backlog.waiting },
  options.backlog,
)
const sample: Sample = { figures: { ...figures, above: (peak() - idle) / MB }, lost, doubled }
process.send?.(sample, () => process.disconnect())

/** Resets the peak of resident memory on Linux. Elsewhere the peak counts from the start of the process. */
function forgetPeak(): void {
  if (process.platform === 'linux') writeFileSync('/proc/self/clear_refs', '5')
}

function peak(): number {
  if (process.platform !== 'linux') return process.resourceUsage().maxRSS * 1024
  const line = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))
  return Number(line?.[1]) * 1024
}
