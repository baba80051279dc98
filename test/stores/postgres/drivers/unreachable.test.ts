// No connection can be had: the server is not there, is something else, or the pool is in use. The caller learns which, soon, and
// that nothing was written.
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { Pool } from 'pg'
import postgresJs from 'postgres'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { Queue } from 'millrace'
import { postgres } from 'millrace/postgres'
import type { PostgresOptions } from 'millrace/postgres'
import { systemRuntime } from '../../../../src/store/runtime.js'
import { postgresJsDriver } from '../../../../src/stores/postgres/drivers/postgres-js.js'
import { openDriver } from '../../../../src/stores/postgres/drivers/open.js'
import { closing, gate, mailbox } from '../../../setup.js'
import { startProxy } from '../server/proxy.js'
import type { Proxy } from '../server/proxy.js'
import { newDatabase, newSchema, sharedServer } from '../server/shared.js'
import { rows, run } from '../server/clients.js'

/** What a store may be made with. */
type Kind = 'a URL' | 'a pool of pg' | 'postgres.js'

const kinds: readonly Kind[] = ['a URL', 'a pool of pg', 'postgres.js']

function pool(url: string, max: number): Pool {
  const made = new Pool({ connectionString: url, max })
  made.on('error', () => {})
  onTestFinished(() => void made.end()) // one that still connects is not waited for
  return made
}

function sqlOf(url: string, max: number, onclose = (): void => {}): postgresJs.Sql {
  const made = postgresJs(url, { max, onnotice: () => {}, fetch_types: false, onclose })
  onTestFinished(() => made.end({ timeout: 0 }))
  return made
}

function queueOn(target: string | Pool | postgresJs.Sql, options: PostgresOptions = {}): Queue {
  return closing(new Queue('work', { store: closing(postgres(target as string, options)), logger: false }))
}

function on(kind: Kind, url: string, options?: PostgresOptions): Queue {
  if (kind === 'a URL') return queueOn(url, options)
  return queueOn(kind === 'postgres.js' ? sqlOf(url, 3) : pool(url, 3), options)
}

/** A port of this machine where something listens that is no PostgreSQL; counts who comes. */
async function listener(
  greet: (socket: Socket) => void,
): Promise<{ readonly url: string; readonly came: () => number }> {
  let came = 0
  const server = createServer((socket) => {
    came++
    socket.on('error', () => {})
    greet(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { url: `postgres://127.0.0.1:${(server.address() as AddressInfo).port}/jobs`, came: () => came }
}

describe.each(kinds)('with %s', (kind) => {
  test('an unreachable server is named, and the error does not mention writes', async () => {
    await expect(on(kind, 'postgres://127.0.0.1:9/jobs').add('n')).rejects.toMatchObject({
      code: 'DATABASE_UNREACHABLE',
      message: expect.stringMatching(
        /^Cannot connect to 127\.0\.0\.1:9 \(.*ECONNREFUSED.*\)\. Nothing was written/,
      ) as string,
    })
  })
})

describe.each(kinds)('with %s', (kind) => {
  test('a port that does not answer is tried once, for as long as an answer may take', async () => {
    const { url, came } = await listener(() => {})
    await expect(on(kind, url, { patience: 2_500 }).add('n')).rejects.toMatchObject({
      code: 'DATABASE_UNREACHABLE',
      message: expect.stringContaining(`Cannot connect to ${new URL(url).host}`) as string,
    })
    expect(came()).toBe(1)
  })

  test('a port that answers in another language is named', async () => {
    const { url } = await listener((socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))
    await expect(on(kind, url, { patience: 2_500 }).add('n')).rejects.toMatchObject({
      code: 'DATABASE_UNREACHABLE',
      message: expect.stringContaining(`Cannot connect to ${new URL(url).host}`) as string,
    })
  })
})

describe('a server that falls silent', () => {
  const max = 3
  const text = "insert into calls values ('sent') returning what"
  let url = ''
  let proxy: Proxy
  beforeEach(async () => {
    url = await newDatabase()
    await run(url, 'create table calls (what text not null)')
    proxy = await startProxy(Number(new URL(url).port))
    onTestFinished(() => proxy.close())
  })
  const calls = (): Promise<unknown[]> => rows(url, 'select what from calls')

  /** Takes all connections of the pool at once: none of them may have been lost to the client. */
  async function takeAll(target: Pool | postgresJs.Sql): Promise<void> {
    if (target instanceof Pool) {
      const clients = await Promise.all(Array.from({ length: max }, () => target.connect()))
      return clients.forEach((client) => client.release())
    }
    let left = max
    const all = gate()
    const take = (): Promise<unknown> =>
      target.begin(async () => {
        if (--left === 0) all.open()
        await all.promise
      })
    await Promise.all(Array.from({ length: max }, take))
  }

  test.each([
    ['postgres.js', 'before the first connection'],
    ['postgres.js', 'after connections were lost'],
    ['pg', 'after connections were lost'],
  ] as const)('by %s, %s, is named whatever number waits, and is used when it answers again', async (kind, when) => {
    const lost = mailbox<void>()
    const target =
      kind === 'pg' ? pool(proxy.through(url), max) : sqlOf(proxy.through(url), max, () => lost.put(undefined))
    if (target instanceof Pool) target.on('remove', () => lost.put(undefined))
    const options = { patience: 1_500, connections: max, timer: systemRuntime().timer }
    const isFirst = when === 'before the first connection'
    const driver = isFirst ? postgresJsDriver(target as never, options) : await openDriver(target, options)
    if (!isFirst) await takeAll(target)
    proxy.freeze()
    proxy.cut()
    if (!isFirst) for (let n = 0; n < max; n++) await lost.next()
    const failure = { code: 'DATABASE_UNREACHABLE', message: expect.stringContaining(String(proxy.port)) as string }
    const failing: Promise<unknown>[] = [driver.transact(async () => {}), driver.script([text])]
    for (let n = 0; n < max + 2; n++) failing.push(driver.call({ name: '', text, values: [] }))
    for (const each of await Promise.allSettled(failing)) {
      expect(each).toEqual({ status: 'rejected', reason: expect.objectContaining(failure) as unknown })
    }
    await proxy.pass()
    await takeAll(target)
    expect(await calls()).toEqual([])
    expect(await driver.call({ name: '', text, values: [] })).toBe('sent')
    expect(await calls()).toHaveLength(1)
  })
})

describe('a pool that is in use', () => {
  let url = ''
  let schema = ''
  beforeEach(async () => {
    url = await sharedServer()
    schema = newSchema()
  })

  test.each(['pg', 'postgres.js'])(
    'by %s is distinguished from a server that is gone, and goes on when it is free',
    async (kind) => {
      const target = kind === 'pg' ? pool(url, 2) : sqlOf(url, 2)
      const queue = queueOn(target, { schema, patience: 2_500 })
      await queue.add('first')
      const free = gate()
      const taken: Promise<unknown>[] = []
      if (target instanceof Pool) {
        const clients = await Promise.all([target.connect(), target.connect()])
        taken.push(free.promise.then(() => clients.forEach((client) => client.release())))
      } else {
        const held = [gate(), gate()]
        for (const each of held) {
          taken.push(
            target.begin(async () => {
              each.open()
              await free.promise
            }),
          )
        }
        await Promise.all(held.map((each) => each.promise))
      }
      await expect(queue.add('second')).rejects.toMatchObject({
        code: 'POOL_EXHAUSTED',
        message: expect.stringMatching(/All 2 connections of the pool were in use.*Nothing was written/) as string,
      })
      free.open()
      await Promise.all(taken)
      await queue.add('third')
      expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['first', 'third'])
    },
  )

  test('a signal ends the wait, and what was not sent by then is not sent', async () => {
    const own = pool(url, 2)
    const queue = queueOn(own, { schema, patience: 20_000 })
    await queue.add('first')
    const clients = await Promise.all([own.connect(), own.connect()])
    const underWay = queue.add('under way')
    await new Promise(setImmediate) // its batch has left, and waits for a connection
    await new Promise(setImmediate)
    const controller = new AbortController()
    const waiting = [
      queue.add('alone', 1, { signal: controller.signal }),
      queue.addBulk([{ name: 'one' }, { name: 'of many' }], { signal: controller.signal }),
    ]
    const reason = new Error('enough')
    controller.abort(reason)
    for (const each of waiting) await expect(each).rejects.toBe(reason)
    for (const client of clients) client.release()
    await underWay
    await queue.add('last')
    expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['first', 'under way', 'last'])
  })
})

test('a signal that has aborted refuses at once, and one that is none is refused', async () => {
  const queue = queueOn(await sharedServer(), { schema: newSchema() })
  const reason = new Error('never')
  const signal = AbortSignal.abort(reason)
  await expect(queue.add('n', 1, { signal })).rejects.toBe(reason)
  await expect(queue.addBulk([{ name: 'n' }], { signal })).rejects.toBe(reason)
  await expect(queue.add('n', 1, { signal: {} as AbortSignal })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect((await queue.list()).jobs).toEqual([])
})

describe('a pool of one connection', () => {
  test.each(kinds)(
    'by %s is refused when the store is opened, for a transaction would wait for itself',
    async (kind) => {
      const url = await sharedServer()
      const target = kind === 'a URL' ? url : kind === 'postgres.js' ? sqlOf(url, 1) : pool(url, 1)
      const queue = queueOn(target, { schema: newSchema(), ...(kind === 'a URL' && { connections: 1 }) })
      const calls = [() => queue.store.open(), () => queue.add('n'), () => queue.transaction(async () => {})]
      for (const call of calls) {
        await expect(call()).rejects.toMatchObject({ code: 'POOL_TOO_SMALL' })
      }
    },
  )

  test.each(['pg', 'postgres.js'])(
    'more by %s leaves one for the rest, however many transactions there are',
    async (kind) => {
      const url = await sharedServer()
      const queue = queueOn(kind === 'pg' ? pool(url, 2) : sqlOf(url, 2), { schema: newSchema(), patience: 20_000 })
      await Promise.all(
        Array.from({ length: 4 }, (_, n) => queue.transaction(async () => void (await queue.add(`name ${n}`)))),
      )
      expect((await queue.counts()).waiting).toBe(4)
    },
  )
})
