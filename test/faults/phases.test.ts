// Workers killed in every phase of a job: it goes on with the phase that it was in, and has what those before it returned.
import { expect, test } from 'vitest'
import { Queue, defineJobs, job } from '../../src/index.js'
import { postgres } from '../../src/postgres.js'
import { sqlite } from '../../src/sqlite.js'
import type { Store } from '../../src/store/store.js'
import { newDatabase } from '../stores/postgres/server/shared.js'
import { closing, event } from '../setup.js'
import { linesOf } from './account.js'
import type { PhasedInput, PhasedMessage } from './programs/phase-worker.js'
import { scene, start } from './processes.js'

const path = scene()

const jobs = defineJobs({
  video: job({ phases: ['download', 'process', 'upload'], attempts: 10 }),
  order: job({ phases: ['reserve', 'charge'], attempts: 10 }),
})

const places: readonly { readonly on: string; readonly place: () => Promise<{ database: string; store: Store }> }[] = [
  {
    on: 'SQLite',
    place: async () => ({ database: path('jobs.db'), store: closing(sqlite(path('jobs.db'))) }),
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
  'on $on interrupted phase context is kept after restart, wherever the process was killed',
  { timeout: 60_000 },
  async ({ place }) => {
    const { database, store } = await place()
    const queue = closing(new Queue('work', { store, jobs, logger: false }))
    const employ = (stays?: string) =>
      start<PhasedMessage>('phase-worker', {
        database,
        ledger: path('ledger'),
        ...(stays !== undefined && { stays }),
      } satisfies PhasedInput)

    const video = await queue.add('video', undefined)
    for (const phase of ['download', 'process', 'upload'] as const) {
      const begun = event(queue, 'phase', (each) => each.phase === phase && each.status === 'active')
      await queue.counts() // who listens and then reads is told of all that comes after what was read
      const worker = employ(phase)
      await Promise.all([worker.received('stays'), begun])
      await worker.kill()
      expect((await video.refresh()).phases[phase]).toMatchObject({ status: 'active' })
    }
    const failed = event(queue, 'failed')
    const order = await queue.add('order', undefined)
    const charging = employ('charge')
    await charging.received('stays')
    await charging.kill()
    const last = employ()
    expect(await video.result()).toBe('upload done')
    const results = { download: 'download done', process: 'process done' }
    expect(linesOf(path('ledger')).filter(([name]) => name === 'video')).toEqual(
      [
        ['download', {}],
        ['download', {}],
        ['process', { download: 'download done' }],
        ['process', { download: 'download done' }],
        ['upload', results],
        ['upload', results],
      ].map(([phase, known]) => ['video', phase, ...JSON.stringify(known).split(' ')]),
    )
    expect((await video.refresh()).attempt).toBe(4)

    // One that must not be tried twice is not.
    expect((await failed).error).toMatchObject({ code: 'JOB_EXHAUSTED' })
    expect((await order.refresh()).phases).toMatchObject({
      reserve: { status: 'completed', result: 'reserve done' },
      charge: { status: 'failed', error: { code: 'JOB_EXHAUSTED' } },
    })
    expect(linesOf(path('ledger')).filter(([, phase]) => phase === 'charge')).toHaveLength(1)
    expect(await last.finish()).toMatchObject({ code: 0 })
  },
)
