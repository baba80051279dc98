// A connection may be lost at any moment. Every call then ends, no promise is left without a handler, which would end the
// process, and the next call works.
import { Pool } from 'pg'
import postgresJs from 'postgres'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { systemRuntime } from '../../../../src/store/runtime.js'
import type { Driver } from '../../../../src/stores/postgres/drivers/driver.js'
import { openDriver } from '../../../../src/stores/postgres/drivers/open.js'
import { postgresJsDriver } from '../../../../src/stores/postgres/drivers/postgres-js.js'
import { gate } from '../../../setup.js'
import { startCutter } from '../server/message-proxy.js'
import type { Cutter, Loss } from '../server/message-proxy.js'
import { newDatabase } from '../server/shared.js'

let url = ''

beforeAll(async () => {
  url = await newDatabase()
})

type Kind = 'pg' | 'postgres.js'

/** A driver, how to run a statement in its transactions, and how to end it. */
interface Subject {
  readonly open: () => Promise<Driver>
  readonly run: (tx: unknown, text: string) => Promise<unknown>
  readonly close: () => Promise<unknown>
}

function subject(kind: Kind, to: string): Subject {
  const options = { patience: 4_000, connections: 2, timer: systemRuntime().timer }
  if (kind === 'pg') {
    const pool = new Pool({ connectionString: to, max: 2 })
    pool.on('error', () => {})
    return {
      open: () => openDriver(pool, options),
      run: (tx, text) => (tx as Pool).query(text),
      close: () => pool.end(),
    }
  }
  const sql = postgresJs(to, { max: 2, onnotice: () => {}, fetch_types: false, backoff: () => 0 })
  return {
    open: () => openDriver(sql, options),
    run: (tx, text) => (tx as postgresJs.TransactionSql).unsafe(text),
    close: () => sql.end({ timeout: 0 }),
  }
}

/** Uses all that a driver can do. */
async function useAll(driver: Driver, run: Subject['run']): Promise<void> {
  const listening = await driver.listen('ears', { notified: () => {}, lost: () => {} })
  try {
    await listening.call({ name: '', text: 'select pg_notify($1, $2)::text', values: ['ears', 'hello'] })
    await driver.call({ name: 'named', text: 'select $1::text', values: ['value'] })
    await driver.transact(async (tx) => {
      await driver.savepoint(tx, async (inner) => run(inner, 'select 1/0')).catch(() => {})
      await driver.savepoint(tx, async (inner) => run(inner, 'select 1'))
    })
    const brokenOff = driver.transact(async (tx) => {
      const began = gate()
      const inside = driver.savepoint(tx, async (inner) => {
        began.open()
        await run(inner, 'select pg_sleep(20)')
      })
      await Promise.race([began.promise, inside])
      inside.catch(() => {})
      throw new Error('broken off')
    })
    await brokenOff.catch(() => {})
  } finally {
    await listening.close()
  }
}

/** Uses a driver by way of a proxy that cuts it off, and then again. Returns the number of messages of the first use. */
async function usedTwice(kind: Kind, cutter: Cutter): Promise<number> {
  const { open, run, close } = subject(kind, cutter.through(url))
  const opened = await open().catch(() => undefined)
  if (opened !== undefined) await useAll(opened, run).catch(() => {})
  const { passed } = cutter
  cutter.cutAt(Infinity, 'close')
  const driver = opened ?? (await open().catch(open))
  const there = (): Promise<string | null> => driver.call({ name: '', text: "select 'there'", values: [] })
  // The loss of connections that were idle may be noticed by calls, each by one.
  expect(await there().catch(there).catch(there)).toBe('there')
  await close()
  return passed
}

describe.each(['pg', 'postgres.js'] as const)('by %s', (kind) => {
  test.each<Loss>(['reset', 'close'])(
    'a %s at the end of any message leaves nothing behind',
    async (how) => {
      const unhandled: unknown[] = []
      const note = (error: unknown): void => void unhandled.push(error)
      process.on('unhandledRejection', note)
      onTestFinished(() => void process.off('unhandledRejection', note))

      const cutters = await Promise.all([1, 2, 3, 4].map(() => startCutter(Number(new URL(url).port))))
      onTestFinished(() => cutters.forEach((cutter) => cutter.close()))
      const messages = await usedTwice(kind, cutters[0]!)
      expect(messages).toBeGreaterThan(50)
      let last = 0
      const rest = async (cutter: Cutter): Promise<void> => {
        while (last < messages) {
          const at = ++last
          cutter.cutAt(at, how)
          await usedTwice(kind, cutter)
          await new Promise(setImmediate) // rejections without a handler are reported between two turns
          expect(unhandled, `by message ${at}`).toEqual([])
        }
      }
      await Promise.all(cutters.map(rest))
    },
    180_000,
  )
})

test.each<readonly [string, string | null, readonly (object | undefined)[]]>([
  ['no answer at all', null, []],
  ['the answer to another statement', 'ROLLBACK', []],
  ['no row of a function', 'SELECT', []],
  ['a row behind one that is missing', 'SELECT', [undefined, { commit_v1: '{}' }]],
])('by postgres.js %s counts as a lost connection, and not as a result', async (_what, command, answer) => {
  const rows: readonly unknown[] = Object.assign([...answer], { command, count: 0 })
  const sql = Object.assign(() => {}, { options: { max: 2 }, unsafe: () => Promise.resolve(rows) })
  const driver = postgresJsDriver(sql as never, { patience: 4_000, connections: 2, timer: systemRuntime().timer })
  const call = driver.call({
    name: 'commit',
    text: 'select "millrace".commit_v1($1::text::jsonb)::text',
    values: ['{}'],
  })
  await expect(call).rejects.toMatchObject({ name: 'NoAnswer' })
})
