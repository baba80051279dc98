// What a transaction gave out writes nothing once the transaction is over: not by itself, and not in the next one on the same
// connection.
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { Pool } from 'pg'
import postgresJs from 'postgres'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { systemRuntime } from '../../src/store/runtime.js'
import type { Driver } from '../../src/stores/postgres/drivers/driver.js'
import { openDriver } from '../../src/stores/postgres/drivers/open.js'
import { postgresJsDriver } from '../../src/stores/postgres/drivers/postgres-js.js'
import { startProxy } from './postgres/server/proxy.js'
import type { Proxy } from './postgres/server/proxy.js'
import { newDatabase } from './postgres/server/shared.js'
import { connected, rows } from './postgres/server/clients.js'
import { closing, event, gate } from '../setup.js'
import { drivers, freshFolder } from './sqlite/folder.js'

type Row = Record<string, unknown>

let url = ''

beforeAll(async () => {
  url = await newDatabase()
  const client = await connected(url)
  await client.query('create table effects (test text not null, what text not null)')
})

const INSERT = 'insert into effects (test, what) values ($1, $2)'

/** The drivers of PostgreSQL: how to connect, and how to run a statement with what they give. */
const clients = {
  pg: {
    open: (to: string, max: number): Pool => {
      const pool = new Pool({ connectionString: to, max })
      pool.on('error', () => {})
      onTestFinished(() => pool.end())
      return pool
    },
    run: async (tx: unknown, text: string, values: string[] = []): Promise<Row[]> =>
      (await (tx as Pool).query<Row>(text, values)).rows,
  },
  'postgres.js': {
    open: (to: string, max: number, onerror?: () => void): postgresJs.Sql => {
      const options = { max, onnotice: () => {}, backoff: () => 0, fetch_types: false }
      const sql = postgresJs(to, { ...options, ...(onerror !== undefined && { socket: socketTo(to, onerror) }) })
      onTestFinished(() => sql.end({ timeout: 0 }))
      return sql
    },
    run: async (tx: unknown, text: string, values: string[] = []): Promise<Row[]> => [
      ...(await (tx as postgresJs.TransactionSql).unsafe<Row[]>(text, values)),
    ],
  },
}

/** Makes sockets whose errors are noticed: before they are closed there is a moment in which postgres.js still uses them. */
function socketTo(to: string, onerror: () => void): () => Promise<Socket> {
  return async () => {
    const { hostname, port } = new URL(to)
    const socket = connect(Number(port), hostname)
    await once(socket, 'connect')
    return socket.on('error', () => onerror())
  }
}

async function effects(test: string): Promise<string[]> {
  return (await rows<{ what: string }>(url, 'select what from effects where test = $1 order by what', [test])).map(
    ({ what }) => what,
  )
}

it('a statement of postgres.js that is made in a transaction and awaited after its end is refused', async () => {
  const { open } = clients['postgres.js']
  const queue = closing(new Queue('lazy', { store: closing(postgres(open(url, 3) as never)), logger: false }))
  const over = gate()
  const late: Promise<unknown>[] = []
  const making = async (tx: postgresJs.TransactionSql, what: string): Promise<void> => {
    const made = [tx`insert into effects values ('lazy', ${what})`, tx.unsafe(INSERT, ['lazy', what])]
    const forgotten = tx.unsafe(INSERT, ['lazy', what])
    late.push(
      over.promise.then(() => {
        void forgotten.execute() // not awaited
        return Promise.allSettled(made)
      }),
    )
    await tx`select 1`
  }
  await queue.transaction(async (tx) => making(tx as never, 'committed'))
  const rolledBack = queue.transaction(async (tx) => {
    await making(tx as never, 'rolled back')
    throw new Error('no')
  })
  await expect(rolledBack).rejects.toThrow('no')
  over.open()
  for (const results of await Promise.all(late)) {
    expect(results).toEqual(
      Array.from({ length: 2 }, () => ({
        status: 'rejected',
        reason: expect.objectContaining({ code: 'TRANSACTION_ENDED' }) as unknown,
      })),
    )
  }
  expect(await effects('lazy')).toEqual([])
})

describe.each(Object.entries(clients))('on PostgreSQL by %s', (name, { open, run }) => {
  const write = (tx: unknown, test: string, what: string): Promise<Row[]> => run(tx, INSERT, [test, what])
  const driverOn = async (to: string, max: number): Promise<Driver> =>
    openDriver(open(to, max), { patience: 20_000, connections: max, timer: systemRuntime().timer })

  it('a transaction that is broken off while its savepoint is being made runs nothing of that', async () => {
    const proxy = await startProxy(Number(new URL(url).port))
    onTestFinished(() => proxy.close())
    const driver = await driverOn(proxy.through(url), 3)
    const test = `${name} savepoint`
    const broken = new Error('broken off')
    const held = gate()
    let inside: Promise<unknown> | undefined
    const transacting = driver.transact(async (tx) => {
      const muted = proxy.muteAt('savepoint')
      inside = driver.savepoint(tx, async (inner) => write(inner, test, 'by itself'))
      inside.catch(() => {})
      await muted
      held.open()
      throw broken
    })
    transacting.catch(() => {})
    await held.promise
    await new Promise(setImmediate) // what ends the transaction is sent, or waits for the answer that is held back
    await proxy.pass()
    await expect(transacting).rejects.toBe(broken)
    await expect(inside).rejects.toThrow()
    expect(await effects(test)).toEqual([])
    await driver.transact(async (tx) => write(tx, test, 'afterwards'))
    expect(await effects(test)).toEqual(['afterwards'])
  })

  describe('on a connection that answers no more', () => {
    const through = async (): Promise<{ proxy: Proxy; driver: Driver }> => {
      const proxy = await startProxy(Number(new URL(url).port))
      onTestFinished(() => proxy.close())
      const options = { patience: 1_000, connections: 3, timer: systemRuntime().timer }
      return { proxy, driver: await openDriver(open(proxy.through(url), 3), options) }
    }

    it('a transaction does not wait for ever for the answer to its COMMIT', async () => {
      const { proxy, driver } = await through()
      const test = `${name} unanswered commit`
      const transacting = driver.transact(async (tx) => {
        await write(tx, test, 'once')
        void proxy.muteAt('commit')
      })
      await expect(transacting).rejects.toThrow('did not answer')
      await proxy.pass()
      await driver.transact(async (tx) => write(tx, test, 'afterwards'))
      expect(await effects(test)).toContain('afterwards')
    })

    it('a transaction that fails does not wait for ever for the answer to its ROLLBACK', async () => {
      const { proxy, driver } = await through()
      const broken = new Error('broken')
      const transacting = driver.transact(async (tx) => {
        await write(tx, `${name} unanswered rollback`, 'never')
        void proxy.muteAt('rollback')
        throw broken
      })
      await expect(transacting).rejects.toBe(broken)
      expect(await effects(`${name} unanswered rollback`)).toEqual([])
    })

    it('a transaction does not wait for ever for the answer to its SAVEPOINT, and nothing of it is written', async () => {
      const { proxy, driver } = await through()
      const test = `${name} unanswered savepoint`
      const transacting = driver.transact(async (tx) => {
        await write(tx, test, 'before')
        void proxy.muteAt('savepoint')
        await driver.savepoint(tx, async (inner) => write(inner, test, 'inside')).catch(() => {})
        await write(tx, test, 'after').catch(() => {})
      })
      await expect(transacting).rejects.toThrow('did not answer')
      await proxy.pass()
      await Promise.all([1, 2, 3].map((n) => driver.transact(async (tx) => write(tx, test, `later ${n}`))))
      expect(await effects(test)).toEqual(['later 1', 'later 2', 'later 3'])
    })

    it('a transaction does not wait for ever for a savepoint that is rolled back', async () => {
      const { proxy, driver } = await through()
      const test = `${name} unanswered rollback to`
      const transacting = driver.transact(async (tx) => {
        const inside = driver.savepoint(tx, async (inner) => {
          await write(inner, test, 'inside')
          void proxy.muteAt('rollback to')
          throw new Error('undone')
        })
        await expect(inside).rejects.toThrow('did not answer')
        await write(tx, test, 'after').catch(() => {})
      })
      await expect(transacting).rejects.toThrow('did not answer')
      await proxy.pass()
      await Promise.all([1, 2, 3].map((n) => driver.transact(async (tx) => write(tx, test, `later ${n}`))))
      expect(await effects(test)).toEqual(['later 1', 'later 2', 'later 3'])
    })
  })

  it('ctx.complete whose lease ends while its savepoint is being made writes nothing', async () => {
    const proxy = await startProxy(Number(new URL(url).port))
    onTestFinished(() => proxy.close())
    const store: Store = closing(postgres(open(proxy.through(url), 6) as never))
    const queue = closing(new Queue(`${name}-lease`, { store, logger: false }))
    const muted = gate()
    const worker = new Worker(
      queue,
      {
        n: async (job, ctx) => {
          if (job.attempt === 1) void proxy.muteAt('savepoint').then(muted.open)
          await ctx.complete(async ({ tx }) => void (await write(tx, `${name} lease`, `attempt ${job.attempt}`)))
        },
      },
      { lease: 2000, logger: false },
    )
    closing(worker)
    const retrying = Promise.race([event(queue, 'retrying'), event(queue, 'stalled')]) // where its lease ran out first
    const added = await queue.add('n', 1, { backoff: 1, attempts: 10 })
    await muted.promise
    await retrying
    await proxy.pass()
    await added.result()
    expect(await effects(`${name} lease`)).toEqual([`attempt ${(await added.refresh()).attempt}`])
  })

  it('statements behind the end of a transaction, forgotten in it or kept from it, are refused', async () => {
    const driver = await driverOn(url, 2)
    const test = `${name} behind`
    const late = gate<unknown>()
    let kept: unknown
    await driver.transact(async (tx) => {
      kept = tx
      void run(tx, 'select pg_sleep(0.05)').then(async () => write(tx, test, 'forgotten').catch(late.open))
    })
    expect(await late.promise).toMatchObject({ code: 'TRANSACTION_ENDED' })
    await driver.transact(async () => {
      await expect(write(kept, test, 'in the next')).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    })
    let inner: unknown
    await driver.transact(async (tx) => {
      await driver.savepoint(tx, async (savepoint) => void (inner = savepoint))
      await expect(write(inner, test, 'after its savepoint')).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    })
    expect(await effects(test)).toEqual([])
  })

  it('a savepoint of a transaction that was broken off does not undo one of the next', async () => {
    const target = open(url, 2)
    const driver = await openDriver(target, { patience: 20_000, connections: 2, timer: systemRuntime().timer })
    const test = `${name} stale savepoint`
    const go = gate()
    const started = gate()
    let backend: unknown
    let stale: Promise<unknown> | undefined
    const broken = driver.transact(async (tx) => {
      backend = (await run(tx, 'select pg_backend_pid() as pid'))[0]!.pid
      stale = driver.savepoint(tx, async () => {
        started.open()
        await go.promise
        throw new Error('late')
      })
      stale.catch(() => {})
      await started.promise
      throw new Error('broken off')
    })
    await expect(broken).rejects.toThrow('broken off')
    // The next one gets the same connection, where the driver uses it again.
    const others = 'reserve' in target ? [await target.reserve(), await target.reserve()] : []
    for (const other of others) {
      const [row] = await other.unsafe<Row[]>('select pg_backend_pid() as pid')
      if (row!.pid === backend) other.release()
      else onTestFinished(() => other.release())
    }
    await driver.transact(async (tx) =>
      driver.savepoint(tx, async (inner) => {
        if (others.length > 0) expect((await run(inner, 'select pg_backend_pid() as pid'))[0]!.pid).toBe(backend)
        await write(inner, test, 'next')
        go.open()
        await stale!.catch(() => {})
        await run(inner, 'select 1')
      }),
    )
    expect(await effects(test)).toEqual(['next'])
  })
})

describe('on PostgreSQL by postgres.js, which opens a connection anew', () => {
  const { open, run } = clients['postgres.js']

  it.each(['answers', 'throws'] as const)(
    'work whose connection was lost and that %s later does not end the next transaction',
    async (how) => {
      const driver = postgresJsDriver(open(url, 1) as never, {
        patience: 20_000,
        connections: 1,
        timer: systemRuntime().timer,
      })
      const test = `lost ${how}`
      const began = gate<number>()
      const go = gate()
      const late = gate<unknown>()
      const lost = driver.transact(async (tx) => {
        const [row] = await run(tx, 'select pg_backend_pid() as pid')
        began.open(row!.pid as number)
        await go.promise
        await run(tx, INSERT, [test, 'of the first']).catch(late.open)
        if (how === 'throws') throw new Error('late')
      })
      lost.catch(() => {})
      const pid = await began.promise
      await rows(url, 'select pg_terminate_backend($1)', [pid])
      await expect(lost).rejects.toThrow()
      const next = driver.transact(async (tx) => {
        await run(tx, INSERT, [test, 'of the next'])
        go.open()
        expect(await late.promise).toMatchObject({ code: 'TRANSACTION_ENDED' })
        await new Promise(setImmediate)
        await run(tx, 'select 1') // behind whatever was sent
        if (how === 'answers') throw new Error('rolled back')
      })
      await next.catch(() => {})
      expect(await effects(test)).toEqual(how === 'answers' ? [] : ['of the next'])
    },
  )

  it('a statement that is sent when the connection has just been lost neither runs nor ends the process', async () => {
    const driver = postgresJsDriver(open(url, 1) as never, {
      patience: 20_000,
      connections: 1,
      timer: systemRuntime().timer,
    })
    const began = gate<number>()
    const late = gate<unknown>()
    const lost = driver.transact(async (tx) => {
      const [row] = await run(tx, 'select pg_backend_pid() as pid')
      began.open(row!.pid as number)
      await run(tx, 'select pg_sleep(60)').catch(() => {})
      await run(tx, INSERT, ['just lost', 'late']).catch(late.open)
    })
    lost.catch(() => {})
    const pid = await began.promise
    await rows(url, 'select pg_terminate_backend($1)', [pid])
    expect(await late.promise).toMatchObject({ code: 'TRANSACTION_ENDED' })
    await expect(lost).rejects.toThrow()
    const call = (): Promise<string | null> => driver.call({ name: '', text: "select 'there'", values: [] })
    expect(await call().catch(call)).toBe('there') // the first may get the error of the last one on the connection
    expect(await effects('just lost')).toEqual([])
  })

  describe('in the moment between the error of a connection and its end', () => {
    /** A driver on one connection, which is idle, and what makes it fail; resolves with what was done in that moment. */
    const failing = async (): Promise<{ driver: Driver; meanwhile: <T>(work: () => Promise<T>) => Promise<T> }> => {
      const proxy = await startProxy(Number(new URL(url).port))
      onTestFinished(() => proxy.close())
      let onerror = (): void => {}
      const driver = postgresJsDriver(open(proxy.through(url), 1, () => onerror()) as never, {
        patience: 5_000,
        connections: 1,
        timer: systemRuntime().timer,
      })
      await driver.transact(async () => {})
      return {
        driver,
        meanwhile: <T>(work: () => Promise<T>) =>
          new Promise<T>((resolve, reject) => {
            onerror = () => {
              onerror = () => {}
              setTimeout(() => void there(driver, 'next').catch(() => {})) // opens the connection anew
              queueMicrotask(() => void work().then(resolve, reject))
            }
            proxy.cut()
          }),
      }
    }
    const there = (driver: Driver, what: string): Promise<string | null> =>
      driver.call({ name: '', text: `select '${what}'`, values: [] })

    it('a transaction that begins runs nothing outside of one', async () => {
      const { driver, meanwhile } = await failing()
      const test = 'begun on a lost connection'
      const transacting = meanwhile(() =>
        driver.transact(async (tx) => {
          await run(tx, `insert into effects values ('${test}', 'outside')`)
          throw new Error('rolled back')
        }),
      )
      await expect(transacting).rejects.toThrow()
      expect(await there(driver, 'last')).toBe('last')
      expect(await effects(test)).toEqual([])
    })

    it('transactions that begin, there and on the connection that is opened anew, do not share one', async () => {
      const { driver, meanwhile } = await failing()
      const test = 'shared'
      const works = await meanwhile(async () => {
        const first = driver.transact(async (tx) => {
          await run(tx, `insert into effects values ('${test}', 'first')`)
        })
        first.catch(() => {})
        await new Promise((go) => setTimeout(go, 0)) // the connection is closed by now
        const second = driver.transact(async (tx) => {
          await run(tx, `insert into effects values ('${test}', 'second')`)
          throw new Error('rolled back')
        })
        return Promise.allSettled([first, second])
      })
      expect(works[1]).toMatchObject({ status: 'rejected' })
      expect(await effects(test)).toEqual(works[0].status === 'fulfilled' ? ['first'] : [])
    })

    it('a call is not taken for one that answered nothing', async () => {
      const { driver, meanwhile } = await failing()
      const called = await meanwhile(() => there(driver, 'called').catch((error: unknown) => error))
      if (called !== 'called') expect(called).toBeInstanceOf(Error)
      expect(await there(driver, 'last')).toBe('last')
    })

    it('calls that follow on one that failed get the answers to themselves', async () => {
      const { driver, meanwhile } = await failing()
      const sleeping = driver.call({ name: '', text: 'select pg_sleep(20)::text', values: [] })
      const answers = gate<unknown[]>()
      sleeping.catch(() => {
        const all = ['a', 'b', 'c'].map((each) => there(driver, each).catch(() => each))
        void Promise.all(all).then(answers.open)
      })
      await meanwhile(async () => {})
      expect(await answers.promise).toEqual(['a', 'b', 'c'])
      expect(await there(driver, 'last')).toBe('last')
    })
  })
})

describe.each(drivers)('on SQLite by $name', ({ name, Driver }) => {
  const file = freshFolder()
  const kinds = ['a file', 'memory'] as const

  const scene = (kind: (typeof kinds)[number]): { store: Store; effects: () => unknown } => {
    const handle = new Driver(kind === 'memory' ? ':memory:' : file('jobs.db'))
    handle.exec('CREATE TABLE effects (what TEXT NOT NULL)')
    const store = closing(
      sqlite(kind === 'memory' ? handle : file('jobs.db'), { ...(kind === 'a file' && { driver: name }) }),
    )
    const effects = (): unknown =>
      (handle.prepare('SELECT what FROM effects ORDER BY what').all() as { what: string }[]).map(({ what }) => what)
    if (kind === 'a file') closing({ close: async () => void handle.close() })
    return { store, effects }
  }
  type Handle = InstanceType<typeof Driver>
  const prepared = (tx: unknown): { run(...values: string[]): unknown } =>
    (tx as Handle).prepare('INSERT INTO effects (what) VALUES (?)')
  const ended = expect.objectContaining({ code: 'TRANSACTION_ENDED' }) as Error

  it.each(kinds)('in %s, what was given, and what was prepared with it, is refused afterwards', async (kind) => {
    const { store, effects } = scene(kind)
    let tx: unknown
    let statement: ReturnType<typeof prepared> | undefined
    await store.transact!(async (given) => {
      tx = given
      statement = prepared(given)
      statement.run('inside')
    })
    const late = (): void => {
      expect(() => statement!.run('prepared before')).toThrow(ended)
      expect(() => prepared(tx)).toThrow(ended)
      expect(() => (tx as Handle).exec("INSERT INTO effects VALUES ('by exec')")).toThrow(ended)
    }
    late()
    await store.transact!(async () => late())
    await expect(store.get([], tx)).rejects.toThrow(ended)
    expect(effects()).toEqual(['inside'])
  })

  it.each(kinds)('in %s, a savepoint that was broken off neither writes nor undoes one of the next', async (kind) => {
    const { store, effects } = scene(kind)
    const go = gate()
    const started = gate()
    let stale: Promise<unknown> | undefined
    const broken = store.transact!(async (tx) => {
      stale = store.transact!(async (inner) => {
        const statement = prepared(inner)
        started.open()
        await go.promise
        expect(() => statement.run('late')).toThrow(ended)
        throw new Error('late')
      }, tx)
      stale.catch(() => {})
      await started.promise
      throw new Error('broken off')
    })
    await expect(broken).rejects.toThrow('broken off')
    await store.transact!(async (tx) =>
      store.transact!(async (inner) => {
        prepared(inner).run('next')
        go.open()
        await expect(stale).rejects.toThrow('late')
      }, tx),
    )
    expect(effects()).toEqual(['next'])
  })

  it.each(kinds)('in %s, a savepoint that comes when its transaction is over does not begin', async (kind) => {
    const { store, effects } = scene(kind)
    let late: Promise<unknown> | undefined
    const broken = store.transact!(async (tx) => {
      late = store.transact!(async (inner) => void prepared(inner).run('late'), tx)
      late.catch(() => {})
      throw new Error('broken off')
    })
    await expect(broken).rejects.toThrow('broken off')
    await store.transact!(async () => expect(late).rejects.toThrow(ended))
    expect(effects()).toEqual([])
  })
})
