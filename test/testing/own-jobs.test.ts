// Simulating one's own jobs: the example of the guide, and what the simulator gives and takes.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { defineJobs, job } from 'millrace'
import { describeFailure, rules, simulate, simulateSeeds } from 'millrace/testing'
import type { SimulateOptions } from 'millrace/testing'
import { welcomeOnce } from './guide.js'

const jobs = defineJobs({
  charge: job<{ order: number }, { receipt: string }>({ attempts: 10, backoff: '1s' }),
})

/** A payment service that charges as often as it is asked to, unless it is given a key. */
function paymentService(): { charges: string[]; charge(order: number, key?: string): string } {
  const charges: string[] = []
  const seen = new Set<string>()
  return {
    charges,
    charge(order, key) {
      if (key === undefined || !seen.has(key)) charges.push(`order ${order}`)
      if (key !== undefined) seen.add(key)
      return `receipt ${order}`
    },
  }
}

function shop(withKey: boolean): SimulateOptions<typeof jobs> {
  let payments = paymentService()
  return {
    jobs,
    handlers: (process) => ({
      charge: async (job) => {
        const receipt = payments.charge(job.data.order, withKey ? job.id : undefined)
        await process.sleep(800)
        return { receipt }
      },
    }),
    produce: async (queue, process) => {
      payments = paymentService()
      for (let order = 1; order <= 20; order++) {
        await queue.add('charge', { order })
        await process.sleep(500)
      }
    },
    expect: (all) => {
      expect(all.filter(({ state }) => state !== 'completed')).toEqual([])
      expect(payments.charges).toHaveLength(20)
    },
    lasts: '20s',
  }
}

describe('a user’s own jobs', () => {
  test('an idempotent handler survives every seed', { timeout: 60_000 }, async () => {
    const report = await simulateSeeds({ ...shop(true), count: 40 })
    expect(report.failures.map((failure) => describeFailure(failure))).toEqual([])
    expect(report.ran).toBe(40)
  })

  test('one that charges twice is found, with the trouble that it takes', { timeout: 60_000 }, async () => {
    const { failures } = await simulateSeeds({ ...shop(false), count: 40 })
    expect(failures[0]!.violations.map(({ rule }) => rule)).toEqual(['expected'])
    expect(failures[0]!.script.steps.length).toBeLessThanOrEqual(4)
    expect(describeFailure(failures[0]!)).toContain(`Seed ${failures[0]!.seed} failed:\n  expected:`)
  })

  test('the same seed runs the same way', async () => {
    const first = await simulate({ ...shop(true), seed: 5 })
    const second = await simulate({ ...shop(true), seed: 5 })
    expect(first.ok).toBe(true)
    expect(second.trace).toEqual(first.trace)
  })

  test('a producer that throws fails the simulation', async () => {
    const report = await simulate({
      handlers: () => () => 'done',
      produce: () => Promise.reject(new Error('no orders today')),
      lasts: '1s',
    })
    expect(report.violations.map(({ rule, message }) => `${rule}: ${message}`)).toEqual([
      'expected: Producing failed: no orders today',
    ])
  })
})

describe('the guide', () => {
  const guide = readFileSync(new URL('../../docs/simulator.md', import.meta.url), 'utf8')

  test('its example holds', { timeout: 60_000 }, welcomeOnce)

  test('it shows the code that is run here', () => {
    const [shown] = /(?<=```ts\n\/\/ test\/testing\/guide\.ts\n)[^]*?(?=```)/.exec(guide) ?? []
    const run = readFileSync(new URL('guide.ts', import.meta.url), 'utf8').replace(/^.*\n/, '')
    expect(shown).toBe(run)
  })

  test('it lists every promise', () => {
    for (const [rule, promise] of Object.entries(rules)) {
      if (rule !== 'expected') expect(guide).toContain(`| \`${rule}\` | ${promise} |`)
    }
  })
})

test('schedules of your own are held to their promise, and end with the simulation', async () => {
  const report = await simulate({
    seed: 5,
    handlers: () => async () => {},
    produce: async (queue) => {
      await queue.schedule('often', { every: '1s', name: 'n', catchUp: 'all' })
    },
    expect: (jobs) => {
      if (jobs.length < 30) throw new Error(`There were ${jobs.length} runs.`)
    },
  })
  expect(report.violations).toEqual([])
})
