// Jobs in phases under every fault: none that has completed is run again, and each has what those before it returned.
import { expect, test } from 'vitest'
import { defineJobs, job, phases } from 'millrace'
import type { PhasesHandlerOf } from 'millrace'
import { describeFailure, simulateSeeds } from 'millrace/testing'
import type { SimulateOptions } from 'millrace/testing'

const names = ['one', 'two', 'three'] as const

const jobs = defineJobs({
  work: job<{ n: number }, string, string, readonly string[], Record<(typeof names)[number], string>>({
    phases: names,
    attempts: 20,
    backoff: '1s',
  }),
})

function factory(): SimulateOptions<typeof jobs> & { readonly runs: () => number } {
  /** How far each job has come. */
  let reached = new Map<string, number>()
  let wrong: string[] = []
  let runs = 0
  return {
    runs: () => runs,
    jobs,
    handlers: (process) => {
      const run = async (at: number, id: string, attempt: number, known: object): Promise<string> => {
        runs++
        const before = reached.get(id) ?? 0
        if (at < before) wrong.push(`${names[at]} of ${id} ran again`)
        reached.set(id, Math.max(at, before))
        const expected = Object.fromEntries(names.slice(0, at).map((name) => [name, `${name} of ${id}`]))
        if (JSON.stringify(known) !== JSON.stringify(expected)) wrong.push(`${id} knew ${JSON.stringify(known)}`)
        await process.sleep(400)
        if (at === 1 && attempt === 1) throw new Error('once')
        return `${names[at]} of ${id}`
      }
      const work: PhasesHandlerOf<typeof jobs, 'work'> = phases({
        one: (each, ctx) => run(0, each.id, each.attempt, ctx.phaseResults()),
        two: async (each, ctx) => {
          void ctx.progress(50)
          return run(1, each.id, each.attempt, ctx.phaseResults())
        },
        three: (each, ctx) => run(2, each.id, each.attempt, ctx.phaseResults()),
      })
      return { work }
    },
    produce: async (queue, process) => {
      reached = new Map()
      wrong = []
      for (let n = 1; n <= 12; n++) {
        await queue.add('work', { n })
        await process.sleep(600)
      }
    },
    expect: (all) => {
      expect(wrong).toEqual([])
      for (const each of all) {
        expect([each.state, each.result]).toEqual(['completed', `three of ${each.id}`])
        expect(Object.values(each.phases).map(({ status }) => status)).toEqual(['completed', 'completed', 'completed'])
      }
    },
    lasts: '20s',
  }
}

test('no phase that has completed runs again, whatever goes wrong', { timeout: 60_000 }, async () => {
  const { runs, ...options } = factory()
  const report = await simulateSeeds({ ...options, count: 16 })
  expect(report.failures.map((failure) => describeFailure(failure))).toEqual([])
  expect(runs()).toBeGreaterThan(16 * 12 * 3)
})
