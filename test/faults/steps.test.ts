// Steps, sleeps and signals of processes that are killed.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import type { StepInput, StepMessage } from './programs/step-worker.js'
import { newDatabase } from '../stores/postgres/server/shared.js'
import { closing, event } from '../setup.js'

const path = scene()

async function stage(kind: 'SQLite' | 'PostgreSQL') {
  const [file, ledger] = [path('jobs.db'), path('ledger')]
  const url = kind === 'PostgreSQL' ? await newDatabase() : undefined
  const store = closing(url === undefined ? sqlite(file) : postgres(url))
  await store.open()
  const where: StepInput = { ledger, ...(url === undefined ? { path: file } : { url }) }
  const begin = async (more: Partial<StepInput> = {}): Promise<Process<StepMessage>> => {
    const process = start<StepMessage>('step-worker', { ...where, ...more })
    await process.received('running')
    return process
  }
  const written = (): string[] => readFileSync(ledger, 'utf8').trim().split('\n')
  return { queue: closing(new Queue('work', { store, logger: false })), begin, written }
}

describe.each(['SQLite', 'PostgreSQL'] as const)('on %s', (kind) => {
  test('a step that was remembered is not run again when its process was killed', async () => {
    const { queue, begin, written } = await stage(kind)
    const first = await begin({ hangs: true })
    const added = await queue.add('steps')
    await first.received('remembered')
    await first.kill()
    await begin()
    const [one, two] = (await added.result()) as [number, number]
    expect(one).toBeLessThan(two) // each is the attempt in which it was taken
    expect(written()).toEqual([`one ${added.id}`, `two ${added.id}`])
  })

  test('a job sleeps on when its process is killed in mid-sleep, and its sleep is over once', async () => {
    const { queue, begin, written } = await stage(kind)
    const first = await begin()
    const delayed = event(queue, 'delayed')
    const added = await queue.add('sleeps', 700)
    const { runAt } = await delayed
    await first.kill()
    await begin()
    expect(await added.result()).toBe('awake')
    expect((await added.refresh()).startedAt).toBeGreaterThanOrEqual(runAt)
    expect(written()).toEqual([`before ${added.id}`, `after ${added.id}`])
  })

  test('a signal of another process is received: sent before the wait, during it, and while no worker runs', async () => {
    const { queue, begin, written } = await stage(kind)
    const early = await queue.add('waits')
    expect(await queue.signal(early.id, 'go', 'before')).toBe(true)
    const first = await begin()
    expect(await early.result()).toBe('before')

    const waits = event(queue, 'waiting-children')
    const late = await queue.add('waits')
    await waits
    expect(await queue.signal(late.id, 'go', 'during')).toBe(true)
    expect(await late.result()).toBe('during')

    const waitsToo = event(queue, 'waiting-children')
    const orphan = await queue.add('waits')
    await waitsToo
    await first.kill()
    expect(await queue.signal(orphan.id, 'go', 'meanwhile')).toBe(true)
    expect(await queue.signal(orphan.id, 'go', 'again')).toBe(false)
    await begin()
    expect(await orphan.result()).toBe('meanwhile')
    expect(written()).toEqual([early, late, orphan].map(({ id }) => `before ${id}`))
  })
})
