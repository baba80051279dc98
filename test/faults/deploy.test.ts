// Two versions of a program side by side, as in every deploy: neither is given what it does not know.
import { expect, test } from 'vitest'
import { Queue, defineJobs, job } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { closing, event } from '../setup.js'
import { scene, start } from './processes.js'
import type { VersionedInput, VersionedMessage } from './programs/versioned-worker.js'

const path = scene()

test('an old worker leaves new payloads to new workers, which take the old ones as well', async () => {
  const store = closing(sqlite(path('jobs.db')))
  const before = closing(new Queue('work', { store, jobs: defineJobs({ mail: job() }), logger: false }))
  const after = closing(new Queue('work', { store, jobs: defineJobs({ mail: job({ version: 2 }) }), logger: false }))
  const ran: { by: number; version: number; to: unknown }[] = []
  const deploy = async (version: 1 | 2) => {
    const program = start<VersionedMessage>('versioned-worker', {
      path: path('jobs.db'),
      version,
    } satisfies VersionedInput)
    program.onEach((message) => {
      if (message.kind === 'ran') ran.push({ by: version, version: message.version, to: message.to })
    })
    await program.received('running')
    return program
  }
  const add = async (count: number) => {
    const old = Array.from({ length: count }, () => ({ name: 'mail' as const, data: { to: 'a' } }))
    const young = Array.from({ length: count }, () => ({ name: 'mail' as const, data: { to: ['a'] } }))
    const [olds, youngs] = await Promise.all([before.addBulk(old), after.addBulk(young)])
    return { olds, youngs }
  }

  const first = await deploy(1)
  const { olds, youngs } = await add(50)
  await Promise.all(olds.map((each) => each.result()))
  expect(ran).toHaveLength(50)
  expect(await after.explain(youngs[0]!.id)).toMatchObject({
    reasons: [{ why: 'no-worker', name: 'mail', version: 2, known: [1] }],
    text: expect.stringContaining("no live worker handles version 2 of 'mail'") as string,
  })

  await deploy(2)
  await Promise.all(youngs.map((each) => each.result()))
  const more = await add(200)
  await Promise.all([...more.olds, ...more.youngs].map((each) => each.result()))
  await first.finish()
  const last = event(after, 'completed')
  await before.add('mail', { to: 'a' })
  await last

  const kinds = new Set(ran.map(({ by, version, to }) => `${by} ran ${version}: ${JSON.stringify(to)}`))
  expect([...kinds].toSorted()).toEqual(['1 ran 1: "a"', '2 ran 1: ["a"]', '2 ran 2: ["a"]'])
  expect(ran.filter(({ version }) => version === 2)).toHaveLength(250)
})
