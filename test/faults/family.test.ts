// Eight processes work on the children of one parent, and two of them are killed: it is released once, with every result.
import { expect, test } from 'vitest'
import { FlowProducer } from '../../src/index.js'
import { postgres } from '../../src/postgres.js'
import { sqlite } from '../../src/sqlite.js'
import type { Store } from '../../src/store/store.js'
import { newDatabase } from '../stores/postgres/server/shared.js'
import { closing } from '../setup.js'
import { linesOf, repeated, states } from './account.js'
import type { FamilyInput, FamilyMessage } from './programs/family-worker.js'
import { scene, start } from './processes.js'

const path = scene()

const CHILDREN = 10_000
const WORKERS = 8
/** Children that are done when two of the workers are killed. */
const KILL_AT = [2000, 4000]

interface Place {
  readonly database: string
  readonly store: Store
}

const places: readonly { readonly on: string; readonly place: () => Promise<Place> }[] = [
  {
    on: 'SQLite',
    place: async () => {
      const database = path('jobs.db')
      return { database, store: closing(sqlite(database, { synchronous: 'off' })) }
    },
  },
  {
    on: 'PostgreSQL',
    place: async () => {
      const database = await newDatabase()
      return { database, store: closing(postgres(database)) }
    },
  },
]

test.each(places)(
  'on $on a parent of 10,000 children is released once, whoever of eight processes is killed',
  { timeout: 180_000 },
  async ({ place }) => {
    const { database, store } = await place()
    await store.open()
    const flows = closing(new FlowProducer({ store }))
    const workers = Array.from({ length: WORKERS }, () =>
      start<FamilyMessage>('family-worker', { database, ledger: path('ledger') } satisfies FamilyInput),
    )
    await Promise.all(workers.map((worker) => worker.received('running')))
    let done = 0
    const killed = KILL_AT.map(
      (at, which) =>
        new Promise<unknown>((resolve, reject) => {
          for (const worker of workers) {
            worker.onEach((message) => {
              if (message.kind !== 'done' || done < at || !workers[which]!.alive) return
              workers[which]!.kill().then(resolve, reject)
            })
          }
        }),
    )
    for (const worker of workers) worker.onEach((message) => (done += message.kind === 'done' ? message.count : 0))

    const family = await flows.add({
      name: 'parent',
      queueName: 'work',
      children: Array.from({ length: CHILDREN }, () => ({
        name: 'child',
        queueName: 'work',
        options: { attempts: 10 },
      })),
    })
    expect(await family.job.result()).toBe(CHILDREN)
    await Promise.all(killed)
    await Promise.all(workers.filter(({ alive }) => alive).map((worker) => worker.finish()))

    // Released, claimed, completed: each once; and with all results, of the children that they are of.
    const lines = linesOf(path('ledger'))
    expect(lines.filter(([verb, code]) => verb === 'error' && code === 'STORE_BUSY')).toEqual([]) // nobody gave up for the others
    const parents = lines.filter(([verb]) => verb === 'parent').map((words) => words.join(' '))
    expect(parents).toEqual([`parent ${family.job.id} 1 ${CHILDREN} ${CHILDREN}`])
    const [parent] = await store.get([family.job.id])
    expect(parent).toMatchObject({ state: 'completed', attempt: 1, fence: 3, pending: 0 })

    const children = await store.get(family.children.map(({ job }) => job.id))
    expect(states(children.map((child) => child!))).toEqual({ completed: CHILDREN })
    const [tally] = await store.tally(['work'])
    expect(tally?.lifetime).toMatchObject({ added: CHILDREN + 1, completed: CHILDREN + 1, failed: 0 })
    expect(repeated(lines.filter(([verb]) => verb === 'settled').map(([, id]) => id!))).toEqual([])

    // Each has ended once; it began again only where a lease ran out, as those of the killed processes did.
    const runs = new Map<string, number>()
    for (const [verb, id] of lines) if (verb === 'child') runs.set(id!, (runs.get(id!) ?? 0) + 1)
    expect(children.filter((child) => (runs.get(child!.id) ?? 0) > child!.stalls + 1)).toEqual([])
    expect(runs.size).toBe(CHILDREN)
    expect(children.filter((child) => child!.attempt > child!.stalls + 1)).toEqual([])
  },
)
