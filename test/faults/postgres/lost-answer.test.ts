// The answer to a commit is lost on its way: the batch is sent again on another connection, and is applied once.
import postgresJs from 'postgres'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { Queue, Worker } from '../../../src/index.js'
import type { Job, JobState, Store } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { startProxy } from '../../stores/postgres/server/proxy.js'
import type { Proxy } from '../../stores/postgres/server/proxy.js'
import { newDatabase } from '../../stores/postgres/server/shared.js'
import type { Batch } from '../../../src/store/store.js'
import { closing, event, gate } from '../../setup.js'
import { observed } from '../../observed-store.js'

let url = ''
let proxy: Proxy
/** Another client of the same database. */
let elsewhere: Queue

beforeEach(async () => {
  url = await newDatabase()
  elsewhere = closing(new Queue('work', { store: closing(postgres(url)), logger: false }))
  proxy = await startProxy(Number(new URL(url).port))
  onTestFinished(() => proxy.close())
})

/** A queue whose few connections go through the proxy; `sending` receives batches before they leave. */
function opened(driver: string, sending: (batch: Batch) => void = () => {}): Queue {
  const sql =
    driver === 'pg' ? undefined : postgresJs(proxy.through(url), { max: 2, onnotice: () => {}, fetch_types: false })
  if (sql !== undefined) onTestFinished(() => sql.end({ timeout: 0 }))
  const store = closing(postgres(sql ?? proxy.through(url), { connections: 2 }))
  const observing: Store = {
    ...observed(store, () => {}),
    commit: (batch, tx) => {
      sending(batch)
      return store.commit(batch, tx)
    },
  }
  return closing(new Queue('work', { store: observing, logger: false }))
}

const counts = (): Promise<Record<JobState, number>> => elsewhere.counts()

/** Polls until so many jobs are in this state. */
async function there(count: number, state: JobState): Promise<void> {
  while ((await counts())[state] !== count);
}

type Add = (queue: Queue, what: string) => Promise<Job | readonly Job[]>

const ways: readonly (readonly [string, number, Add])[] = [
  ['one plain job', 1, (queue, what) => queue.add('chore', what)],
  ['one with an id of its own', 1, (queue, what) => queue.add('chore', what, { id: what })],
  ['one with a dedup key', 1, (queue, what) => queue.add('chore', what, { dedup: { key: what, mode: 'reject' } })],
  ['several at once', 3, (queue, what) => queue.addBulk([1, 2, 3].map(() => ({ name: 'chore', data: what })))],
]

describe.each(['pg', 'postgres.js'])('on %s', (driver) => {
  test.each(ways)('%s, added once, is there once', async (_what, count, add) => {
    const queue = opened(driver)
    await add(queue, 'first') // the connection stands, and knows the statement
    proxy.mute()
    const adding = add(queue, 'late')
    await there(2 * count, 'waiting')
    proxy.cut()
    const added = [await adding].flat()
    expect(added.map(({ data, duplicate, state }) => [data, duplicate, state])).toEqual(
      added.map(() => ['late', false, 'waiting']),
    )
    expect((await counts()).waiting).toBe(2 * count)
    expect(new Set(added.map(({ id }) => id)).size).toBe(count)
  })

  test('a settlement is made once, and its job is done', async () => {
    const queue = opened(driver)
    await queue.add('chore')
    const go = gate()
    const worker = closing(
      new Worker(
        queue,
        async ({ attempt }) => {
          await go.promise
          return `the end of attempt ${attempt}`
        },
        { logger: false, autorun: false },
      ),
    )
    const active = event(worker, 'active')
    await worker.run()
    await active
    const completed = event(worker, 'completed')
    // Not before: drivers wait for answers before a settlement leaves, as to a statement that they prepare.
    const muted = proxy.muteAt('the end of attempt')
    go.open()
    await muted
    await there(1, 'completed')
    proxy.cut()
    await proxy.pass()
    expect(await completed).toMatchObject({ result: 'the end of attempt 1' })
    expect(await counts()).toMatchObject({ completed: 1, waiting: 0 })
  })
})

test('a claim is found again after an outage, and costs no attempt', { timeout: 60_000 }, async () => {
  let muted = true
  const queue = opened('pg', ({ asks }) => {
    if (muted || asks.length === 0) return
    muted = true
    proxy.mute()
  })
  const worker = closing(new Worker(queue, ({ attempt }) => attempt, { logger: false, autorun: false }))
  await worker.run()
  const first = event(worker, 'completed')
  await elsewhere.add('chore')
  await first
  const away = event(worker, 'error', ({ error }) => error.message.includes('did not answer'))
  const completed = event(worker, 'completed')
  // The claim that is muted must be one that finds the job: no claim is sent before the job is there.
  worker.pause()
  await elsewhere.add('chore', null, { attempts: 1 })
  await there(1, 'waiting')
  muted = false
  worker.resume()
  await there(1, 'active')
  proxy.refuse()
  proxy.cut()
  await away
  await proxy.pass()
  expect(await completed).toMatchObject({ result: 1 })
  expect(await counts()).toMatchObject({ completed: 2, active: 0, failed: 0 })
})
