// Metrics show a queue without workers, and the alert rules and the dashboard of the examples use metrics that exist.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import { prometheus } from 'millrace/telemetry'
import { virtualClock } from '../../src/testing/world/clock.js'
import { memory } from 'millrace/memory'
import { served, stores } from '../stores.js'
import { closing, event } from '../setup.js'

const folder = join(import.meta.dirname, '../../examples/monitoring')
const storeOf = stores()

/** The values of a scrape, by metric and labels. */
function samples(text: string): ReadonlyMap<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]))
}

describe.each(served)('on %s', (kind) => {
  test('a queue without workers is visible: its oldest job, no workers, and what others counted', async () => {
    const store = await storeOf(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    await queue.add('mail')
    const alone = samples(await prometheus(store)())
    expect(alone.get('millrace_workers{queue="work"}')).toBe(0)
    expect(alone.get('millrace_oldest_waiting_seconds{queue="work",name="mail"}')).toBeGreaterThanOrEqual(0)
    const drained = event(queue, 'drained')
    const worker = closing(new Worker(queue, { mail: async () => {} }, { concurrency: 7, logger: false }))
    await worker.run()
    await drained
    expect(samples(await prometheus(store)()).get('millrace_slots{queue="work"}')).toBe(7)
    await worker.close()
    const after = samples(await prometheus(store)())
    expect(after.get('millrace_workers{queue="work"}')).toBe(0)
    for (const which of ['wait', 'run']) {
      const name = `millrace_job_${which}_seconds`
      expect(after.get(`${name}_count{queue="work",name="mail"}`)).toBe(1)
      expect(after.get(`${name}_bucket{queue="work",name="mail",le="+Inf"}`)).toBe(1)
      expect(after.get(`${name}_sum{queue="work",name="mail"}`)).toBeGreaterThanOrEqual(0)
    }
    expect([...after.keys()].filter((key) => key.includes('oldest_waiting'))).toEqual([])
  })
})

test('delayed jobs and schedules that nobody promotes are overdue, by the time of the store', async () => {
  const clock = virtualClock()
  const store = closing(memory({ runtime: clock.runtime }))
  const queue = closing(new Queue('work', { store, logger: false }))
  await queue.add('mail', 1, { delay: '1m' })
  await queue.schedule('tick', { every: '2m', name: 'tick' })
  await clock.advance(5 * 60_000)
  const { overdue, scheduleLag, upkeepLag } = await queue.health()
  expect(overdue).toBe(4 * 60_000)
  expect(scheduleLag).toBeGreaterThan(60_000)
  expect(upkeepLag).toBeGreaterThanOrEqual(overdue!)
  const found = samples(await prometheus(store)())
  expect(found.get('millrace_overdue_seconds{queue="work"}')).toBe(240)
  expect(found.get('millrace_schedule_lag_seconds{queue="work"}')).toBe(scheduleLag! / 1000)
})

const scraped = async (): Promise<ReadonlySet<string>> => {
  const store = closing(memory())
  const text = await prometheus(store)()
  const types = text.split('\n').filter((line) => line.startsWith('# TYPE '))
  return new Set(
    types.flatMap((line) => {
      const [, , name, type] = line.split(' ')
      return type === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name!]
    }),
  )
}

test.each(['alerts.yml', 'grafana.json'])('%s uses metrics that exist', async (file) => {
  const text = readFileSync(join(folder, file), 'utf8')
  const used = new Set(text.match(/\bmillrace_[a-z_]+/g))
  expect(used.size).toBeGreaterThan(5)
  const known = await scraped()
  expect([...used].filter((name) => !known.has(name))).toEqual([])
})

test('the dashboard shows every metric that is served, apart from those of pauses', async () => {
  const text = readFileSync(join(folder, 'grafana.json'), 'utf8')
  const { panels } = JSON.parse(text) as { panels: readonly { targets: readonly { expr: string }[] }[] }
  expect(panels.every(({ targets }) => targets.length > 0)).toBe(true)
  const hidden = [...(await scraped())].filter((name) => !text.includes(name) && !/_(sum|count)$/.test(name))
  expect(hidden).toEqual(['millrace_paused'])
})

test('every alert names its metric, how long it must last or over what it counts, and what to do', () => {
  const rules = readFileSync(join(folder, 'alerts.yml'), 'utf8').split('- alert: ').slice(1)
  expect(rules.length).toBeGreaterThan(5)
  for (const rule of rules) {
    expect(rule).toMatch(/expr: .*millrace_|expr: >-\n.*millrace_/)
    expect(rule).toMatch(/ {8}for: \d+[mhd]|increase\(/)
    expect(rule).toMatch(/severity: (page|ticket)/)
    expect(rule).toMatch(/summary: '.+'/)
  }
})
