// A producer that imports declarations without schemas adds what workers with schemas run.
import { defineJobs, job, withSchemas } from 'millrace'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { newQueue, newStore, newWorker } from '../setup.js'

const light = defineJobs({
  email: job<{ to: string; copies?: number }, { sent: number }>({ version: 2, attempts: 7, timeout: '5s' }),
  sweep: job<undefined, number>(),
})
const jobs = withSchemas(light, {
  email: { input: z.object({ to: z.string().min(1), copies: z.number().default(1) }) },
})

test('a producer without schemas adds jobs under the options and the version that workers with schemas know', async () => {
  const store = newStore()
  const producer = newQueue({ store, jobs: light })
  newWorker(newQueue({ store, jobs }), { email: ({ data }) => ({ sent: (data as { copies: number }).copies }) })
  const added = await producer.add('email', { to: 'ann@example.com' })
  expect([added.version, added.attempts, added.timeout]).toEqual([2, 7, 5000])
  expect(await added.result({ timeout: '50s' })).toEqual({ sent: 1 })
})

test('withSchemas leaves what it is given as it was, and refuses names that were not declared', () => {
  expect(light.email.input).toBeUndefined()
  expect(jobs.email).toMatchObject({ version: 2, attempts: 7 })
  expect(jobs.sweep).toEqual(light.sweep)
  const wrong: object = { emial: {} }
  expect(() => withSchemas(light, wrong)).toThrow("did you mean 'email'?")
})
