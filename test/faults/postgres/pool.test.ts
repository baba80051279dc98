// The user's own pool, which the user has exhausted.
import { Pool } from 'pg'
import { afterEach, expect, test } from 'vitest'
import { Queue, Worker } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { newDatabase } from '../../stores/postgres/server/shared.js'
import { closing, event, gate } from '../../setup.js'
import { soundAccountOf, states } from '../account.js'
import { errorToSend } from '../programs/messages.js'

let pool: Pool | undefined

afterEach(() => pool?.end())

test(
  'a pool without a free connection is reported, leases last as long as they may, and all is done when there is one',
  { timeout: 60_000 },
  async () => {
    pool = new Pool({ connectionString: await newDatabase(), max: 3, connectionTimeoutMillis: 300 })
    pool.on('error', () => {})
    const store = closing(postgres(pool, { patience: 1000 }))
    const queue = closing(new Queue('work', { store, logger: false }))
    const jobs = await queue.addBulk(Array.from({ length: 20 }, (_, n) => ({ name: 'chore', data: n })))
    const ran: string[] = []
    const running = gate()
    const go = gate()
    const worker = closing(
      new Worker(
        queue,
        async (job) => {
          ran.push(job.id)
          if (ran.length === 4) running.open()
          await go.promise
          return job.data
        },
        { concurrency: 4, reconnect: 50, logger: false },
      ),
    )
    await running.promise
    const taken = await Promise.all([pool.connect(), pool.connect(), pool.connect()])
    go.open() // what they come to cannot be written now
    const reported: string[] = []
    for (let n = 0; n < 3; n++) reported.push((await event(worker, 'error')).error.message)
    expect(reported.join('\n')).toContain('timeout exceeded when trying to connect')
    const refused = await queue.add('chore').then(
      () => undefined,
      (error: unknown) => errorToSend(error),
    )
    expect(refused?.message).toContain('connect')

    for (const client of taken) client.release()
    expect(await Promise.all(jobs.map((job) => job.result()))).toEqual(jobs.map((_, n) => n))
    const account = await soundAccountOf(store)
    expect(states(account.jobs.filter(({ id }) => jobs.some((job) => job.id === id)))).toEqual({ completed: 20 })
    expect(ran.toSorted()).toEqual(jobs.map(({ id }) => id).toSorted())
    expect(pool.idleCount).toBe(pool.totalCount) // nothing of the user's is kept
  },
)
