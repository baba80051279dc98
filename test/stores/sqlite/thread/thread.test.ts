// A SQLite store in a thread of this process: the same jobs, without transactions, and what happens when the thread dies.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { Queue, Worker, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { Driver } from '../../../../src/conformance/driver.js'
import { insert } from '../../../../src/conformance/changes.js'
import { Listener } from '../../../../src/conformance/listener.js'
import { startThread } from '../../../../src/stores/sqlite/thread/start.js'
import type { Thread } from '../../../../src/stores/sqlite/thread/start.js'
import { ThreadStore } from '../../../../src/stores/sqlite/thread/store.js'
import { systemRuntime } from '../../../../src/store/runtime.js'
import { closing } from '../../../setup.js'
import { thrown } from '../../../thrown.js'
import { drivers, freshFolder } from '../folder.js'

const at = freshFolder()
const { Driver: Handle } = drivers[0]!
const threaded = () => closing(sqlite(at('jobs.db'), { thread: true }))

/** A store whose threads the test can end. */
function mortal(): { readonly store: ThreadStore; readonly threads: Thread[] } {
  const threads: Thread[] = []
  const start = (): Thread => {
    threads.push(startThread({ path: at('jobs.db'), options: {} }))
    return threads.at(-1)!
  }
  return { store: closing(new ThreadStore({ share: 'machine', portion: 250, start })), threads }
}

test('queues and workers run on it, beside a store of this thread on the same file', async () => {
  const [store, other] = [threaded(), closing(sqlite(at('jobs.db')))]
  const queue = closing(new Queue('q', { store, logger: false }))
  const producer = closing(new Queue('q', { store: other, logger: false }))
  const worker = closing(new Worker(queue, { double: async ({ data }) => (data as number) * 2 }, { logger: false }))
  const jobs = await producer.addBulk([1, 2, 3].map((data) => ({ name: 'double', data })))
  expect(await Promise.all(jobs.map((job) => job.result({ timeout: '30s' })))).toEqual([2, 4, 6])
  const own = await queue.add('double', 21)
  expect(await own.result({ timeout: '30s' })).toBe(42)
  await shutdown([worker, queue, producer, store, other])
})

test('errors of the store arrive with their code and message', async () => {
  const store = closing(sqlite(at('missing/jobs.db'), { thread: true }))
  await expect(store.open()).rejects.toMatchObject({
    name: 'MillraceError',
    code: 'DATABASE_PATH_MISSING',
    message: expect.stringContaining('missing') as string,
  })
})

describe('transactions of the user', () => {
  test('are refused with a way out, and nothing is written', async () => {
    const store = threaded()
    const queue = closing(new Queue('q', { store, logger: false }))
    expect(store.can.transactions).toBe(false)
    const handle = new Handle(at('own.db'))
    handle.exec('BEGIN')
    await expect(queue.add('work', 1, { tx: handle } as never)).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
    await expect(queue.transaction((async () => {}) as never)).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
    const batch = { writer: 'w', seq: 1, groups: [[insert('a', 'work')]], renewals: [], asks: [] }
    await expect(store.commit(batch, handle)).rejects.toMatchObject({
      code: 'INVALID_TRANSACTION',
      message: expect.stringContaining('without { thread: true }') as string,
    })
    handle.close()
    expect((await store.find({})).items).toEqual([])
  })
})

test('what cannot be handed to a thread is refused at once', () => {
  const handle = new Handle(':memory:')
  expect(thrown(() => sqlite(handle, { thread: true }))).toMatchObject({ code: 'INVALID_OPTION' })
  expect(thrown(() => sqlite(at('x.db'), { thread: true, runtime: systemRuntime() }))).toMatchObject({
    code: 'INVALID_OPTION',
  })
  expect(thrown(() => sqlite(at('x.db'), { thread: 'yes' as never }))).toMatchObject({ code: 'INVALID_OPTION' })
  expect(thrown(() => sqlite(at('x.db'), { thread: true, synchronous: 'always' as never }))).toMatchObject({
    code: 'INVALID_OPTION',
  })
  handle.close()
})

describe('a thread that ends by itself', () => {
  test('rejects what is under way as not known; a replay on the next thread applies nothing twice', async () => {
    const { store, threads } = mortal()
    const d = new Driver(store, 'd')
    await d.add('work')
    const batch = { writer: 'w', seq: 1, groups: [[insert('a', 'work')]], renewals: [], asks: [] }
    const receipt = await store.commit(batch)
    const ended = threads[0]!.terminate()
    const underWay = store.get(['a']) // the store learns of the end later
    await expect(underWay).rejects.toMatchObject({ code: 'THREAD_ENDED' })
    await ended
    expect(await store.commit(batch)).toEqual(receipt)
    expect(threads).toHaveLength(2)
    expect((await store.find({})).items).toHaveLength(2)
  })

  test('costs a queue nothing but time: its batch is sent again', async () => {
    const { store, threads } = mortal()
    const queue = closing(new Queue('q', { store, logger: false }))
    await queue.add('work', 0)
    const adding = Array.from({ length: 20 }, (_, n) => queue.add('work', n))
    await new Promise((turn) => setImmediate(turn))
    await threads[0]!.terminate()
    await Promise.all(adding)
    expect(await queue.counts()).toMatchObject({ waiting: 21 })
  })

  test('tells watchers that they may have missed something, and they receive what follows, without a gap', async () => {
    const { store, threads } = mortal()
    const listener = new Listener(store, { events: true })
    const d = new Driver(store, 'd')
    await d.add('work')
    await listener.until(() => listener.events.length === 1, 'told of the first')
    await threads[0]!.terminate()
    await listener.until(() => listener.notices.some(({ missed }) => missed === true), 'told of the end')
    await d.add('work')
    await listener.until(() => listener.events.length === 2, 'told of the second')
    expect(listener.events.map(({ id }) => id)).toEqual(['d-1', 'd-2'])
    expect(listener.notices.some(({ gap }) => gap)).toBe(false)
    listener.stop()
  })
})

test('a thread that cannot start says so, and that nothing was written', async () => {
  const start = (): Thread => startThread({ path: at('jobs.db'), options: null as never })
  const store = closing(new ThreadStore({ share: 'machine', portion: 250, start }))
  await expect(store.open()).rejects.toMatchObject({ code: 'THREAD_NOT_STARTED' })
})

test('what was acknowledged outlives a SIGKILL of the process', { timeout: 60_000 }, async () => {
  const [doors, path] = [new URL('../../../../src/', import.meta.url).href, JSON.stringify(at('jobs.db'))]
  const program = `import { Queue } from '${doors}index.ts'
    import { sqlite } from '${doors}sqlite.ts'
    const queue = new Queue('q', { store: sqlite(${path}, { thread: true }), logger: false })
    const add = async () => { for (;;) console.log((await queue.add('work', 1)).id) }
    for (let n = 0; n < 10; n++) void add()`
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', program])
  let output = ''
  const exited = once(child, 'exit')
  child.stdout.on('data', (part) => {
    output += String(part)
    if (output.length > 4_000) child.kill('SIGKILL')
  })
  await exited
  const acknowledged = output.split('\n').slice(0, -1)
  expect(acknowledged.length).toBeGreaterThan(50)
  const store = closing(sqlite(at('jobs.db')))
  expect((await store.get(acknowledged)).filter((job) => job === undefined)).toEqual([])
})

describe('closing', () => {
  test('ends the thread, is idempotent, and refuses later calls', async () => {
    const { store, threads } = mortal()
    await store.open()
    const exited = new Promise((resolve) => threads[0]!.on('exit', resolve))
    await Promise.all([store.close(), store.close()])
    await exited
    await expect(store.get(['a'])).rejects.toMatchObject({ code: 'STORE_CLOSED' })
    expect(thrown(() => store.watch({}, () => {}))).toMatchObject({ code: 'STORE_CLOSED' })
    expect(threads).toHaveLength(1)
  })

  test('a store that was never used starts no thread', async () => {
    const { store, threads } = mortal()
    await store.close()
    expect(threads).toEqual([])
    await shutdown([store])
  })

  test.each(['closes', 'leaves open'])('a process that %s its store ends', { timeout: 60_000 }, async (how) => {
    const door = new URL('../../../../src/sqlite.ts', import.meta.url)
    const program = `import { sqlite } from '${door.href}'
      const store = sqlite(${JSON.stringify(at('jobs.db'))}, { thread: true })
      await store.open()
      ${how === 'closes' ? 'await store.close()' : ''}
      console.log('opened')`
    const args = ['--import', 'tsx', '--input-type=module', '--eval', program]
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 50_000 })
    expect(stdout).toBe('opened\n')
  })
})
