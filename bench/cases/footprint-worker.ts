// The process whose memory is measured: idles on an empty file, drains a full one, and says what that took.
import { readFileSync, writeFileSync } from 'node:fs'
import type { Order } from './footprint.js'
import type { Sample } from '../measure/measure.js'
import { subjectNamed } from '../contenders/by-name.js'

const MB = 1024 * 1024
const order = JSON.parse(process.argv[2] ?? '') as Order
const subject = await subjectNamed(order.subject, order.full)

const session = await subject.open(order.idle, order.mode)
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
  order.full,
  { mode: order.mode, weight: order.backlog.weight, count: order.backlog.waiting },
  order.backlog,
)
const sample: Sample = { figures: { ...figures, above: (peak() - idle) / MB }, lost, doubled }
process.send?.(sample, () => process.disconnect())

/** On Linux the most that was ever resident can be made to count from now; elsewhere it counts from the start. */
function forgetPeak(): void {
  if (process.platform === 'linux') writeFileSync('/proc/self/clear_refs', '5')
}

function peak(): number {
  if (process.platform !== 'linux') return process.resourceUsage().maxRSS * 1024
  const line = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))
  return Number(line?.[1]) * 1024
}
