// Behind a real PgBouncer in transaction mode: prepared statements, settings and LISTEN of a session do not last, so the
// store works without them. The whole suite, and a busy run with its exact account.
import { once } from 'node:events'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Queue, Worker, shutdown } from 'millrace'
import type { Handler } from 'millrace'
import { conformanceCases, runCase } from 'millrace/conformance'
import { postgres } from 'millrace/postgres'
import { postgresHarness } from '../../conformance/postgres.js'
import { busyRun } from '../../faults/postgres/busy-run.js'
import { scene } from '../../faults/processes.js'
import { newDatabase, sharedServer } from '../../stores/postgres/server/shared.js'
import { addActive, closing, gate, mailbox } from '../../setup.js'
import { startBouncer } from './pgbouncer.js'
import type { Bouncer } from './pgbouncer.js'

let bouncer: Bouncer

beforeAll(async () => {
  bouncer = await startBouncer(await sharedServer())
})

afterAll(() => bouncer.close())

async function session(url: string): Promise<Client> {
  const client = new Client(url)
  await client.connect()
  return client
}

test('the pooler is what it is meant to be: a session does not keep its backend', async () => {
  const url = bouncer.through(await newDatabase())
  const [one, other] = await Promise.all([session(url), session(url)])
  try {
    const backend = 'select pg_backend_pid() as pid'
    await one.query('begin')
    const before = await one.query<{ pid: number }>(backend)
    await one.query('commit')
    await other.query('begin')
    const taken = await other.query<{ pid: number }>(backend)
    expect(taken.rows).toEqual(before.rows)
    const after = await one.query<{ pid: number }>(backend)
    expect(after.rows).not.toEqual(before.rows)
  } finally {
    await Promise.all([one.end(), other.end()])
  }
})

/**
 * Behind it NOTIFY is never received. Polls find the same, though later than the suite waits for it; the holder of a
 * lost lease learns of it at its next renewal. A job that was leased ahead of a hold may start: docs/limits.md says so.
 */
const pushed: readonly string[] = [
  'a holder is notified that its lease was revoked: cancelled',
  'a holder is notified that its lease was revoked: removed',
  'a holder is notified that its lease was revoked: completed-elsewhere',
  'a holder whose job was cancelled is notified of the reason',
  'a commit that revokes many leases notifies of each, or that some were left out',
  'commits of many handles at once are published in one order, without gaps',
  'changes of a transaction are published after it commits, and wake others',
  'another handle is notified of the changes of a transaction, revoked leases included',
  'a hold is announced to every handle, so that what was leased ahead is handed back',
]
const cases = conformanceCases.filter(({ title }) => !pushed.includes(title))

describe('the PostgreSQL store behind it', () => {
  test('skips no more of the suite than what needs a push', () => {
    expect(conformanceCases.length - cases.length).toBe(pushed.length)
  })

  test('a running handler learns at the next renewal that its job was cancelled', async () => {
    const url = await newDatabase()
    const there = closing(postgres(url))
    const here = closing(postgres(bouncer.through(url)))
    const queue = closing(new Queue('work', { store: there, logger: false }))
    const aborted = gate<unknown>()
    const handler: Handler = async (_, { signal }) => {
      await once(signal, 'abort')
      aborted.open(signal.reason)
    }
    const working = closing(new Queue('work', { store: here, logger: false }))
    closing(new Worker(working, handler, { lease: 1500, logger: false }))
    const job = await addActive(queue, 'chore')
    await job.cancel()
    expect(await aborted.promise).toMatchObject({ reason: 'cancelled' })
  })

  test('a watcher receives hints by polling, though it listens and queries through the very same backend', async () => {
    const url = await newDatabase()
    const narrow = await startBouncer(url, { default_pool_size: 1 })
    try {
      const here = closing(postgres(narrow.url))
      const watching = closing(new Queue('work', { store: here, logger: false }))
      const reported = mailbox<string>()
      watching.on('waiting', ({ id }) => reported.put(id))
      await watching.counts()
      const queue = closing(new Queue('work', { store: closing(postgres(url)), logger: false }))
      for (const n of [1, 2, 3]) {
        const { id } = await queue.add('chore', n)
        expect(await reported.next()).toBe(id)
      }
      await shutdown([watching, here])
    } finally {
      await narrow.close()
    }
  })

  for (const area of new Set(cases.map((story) => story.area))) {
    describe(area, () => {
      for (const story of cases.filter((one) => one.area === area)) {
        test(story.title, async () => {
          expect(await runCase(() => postgresHarness(undefined, bouncer.through), story)).toBe('passed')
        })
      }
    })
  }
})

describe('a busy run behind it', () => {
  const path = scene()

  test('every job is done once, with one effect each, while poolers come and go', { timeout: 120_000 }, async () => {
    const url = await newDatabase()
    let own = await startBouncer(url, { default_pool_size: 4 })
    const run = await busyRun({ url, workersUrl: own.url, ledger: path('ledger') })
    for (let round = 0; round < 3; round++) {
      await run.more(150)
      await own.close()
      own = await startBouncer(url, { default_pool_size: 4, listen_port: own.port })
    }
    await run.more(150)
    await run.finish()
    await own.close()
  })
})
