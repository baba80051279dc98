// A store whose error stays until it is repaired: the worker reports it once, and run() rejects where a retry is no use.
import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { MillraceError, Queue, Worker } from 'millrace'
import { webhooks } from 'millrace/webhooks'
import type { ErrorCode, Store, Webhooks } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { virtualClock } from '../../src/testing/world/clock.js'
import { closing } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'

const path = freshFolder()

/** A worker on a store that fails while this returns an error, and what the worker reports. */
function scene(autorun: boolean, webhook?: Webhooks) {
  const clock = virtualClock()
  const inner = memory({ runtime: clock.runtime })
  const state: { wrong: Error | undefined; opened: number } = { wrong: undefined, opened: 0 }
  const fails = <T>(work: () => Promise<T>): Promise<T> => (state.wrong ? Promise.reject(state.wrong) : work())
  const store: Store = Object.assign(Object.create(inner) as Store, {
    open: () => {
      state.opened++
      return fails(() => inner.open())
    },
    commit: (batch: Parameters<Store['commit']>[0]) => fails(() => inner.commit(batch)),
    due: (query: Parameters<Store['due']>[0]) => fails(() => inner.due(query)),
  })
  const logged: string[] = []
  const logger = { warn: () => {}, error: (_details: object, message: string) => void logged.push(message) }
  const queue = new Queue('work', { store, logger: false, ...(webhook !== undefined && { webhook }) })
  const make = (): Worker => new Worker(queue, () => 'ran', { logger, autorun })
  return { clock, queue, make, state, logged, fail: (code: ErrorCode) => (state.wrong = new MillraceError(code, code)) }
}

describe('an error that cannot go away', () => {
  it('is reported once by a worker', async () => {
    const { clock, make, logged, state, fail } = scene(true)
    fail('MISSING_DRIVER')
    const worker = make()
    await clock.advance('1h')
    expect([logged, state.opened]).toEqual([['MISSING_DRIVER'], 1])
    await clock.until(worker.close())
  })

  it('is what run() rejects with, and run() can be called again once it was mended', async () => {
    const { clock, queue, make, logged, state, fail } = scene(false)
    fail('MISSING_DRIVER')
    const worker = make()
    await expect(clock.until(worker.run())).rejects.toMatchObject({ code: 'MISSING_DRIVER' })
    expect(logged).toEqual([]) // the caller has the error
    state.wrong = undefined
    await clock.until(worker.run())
    expect(await clock.until((await queue.add('n')).result())).toBe('ran')
    await clock.until(worker.close())
  })

  it('is found on a real file', async () => {
    mkdirSync(path('folder'))
    writeFileSync(path('text'), 'this is a text, and no database. '.repeat(40))
    for (const [name, code] of [
      ['folder', 'DATABASE_IS_DIRECTORY'],
      ['text', 'DATABASE_INVALID'],
    ] as const) {
      const store = closing(sqlite(path(name)))
      const worker = closing(new Worker('work', () => {}, { store, logger: false, autorun: false }))
      await expect(worker.run()).rejects.toMatchObject({ code })
    }
    rmdirSync(path('folder'))
  })
})

describe('an error that stays until it is repaired', () => {
  it('is reported once for each cause, at the start, and work begins when it is repaired', async () => {
    const { clock, queue, make, logged, state, fail } = scene(true)
    fail('DATABASE_MISSING')
    const worker = make()
    await clock.advance('10m')
    fail('SCHEMA_TOO_NEW')
    await clock.advance('10m')
    expect(logged).toEqual(['DATABASE_MISSING', 'SCHEMA_TOO_NEW'])
    expect(state.opened).toBeGreaterThan(5)
    state.wrong = undefined
    const added = queue.add('n')
    expect(await clock.until(added.then((job) => job.result()))).toBe('ran')
    await clock.until(worker.close())
  })

  it.each([
    ['', undefined],
    [', also where it sends deliveries', webhooks({ unsigned: true })],
  ])('is reported once while a worker runs, and again if it comes back%s', async (_also, webhook) => {
    const { clock, queue, make, logged, state, fail } = scene(true, webhook)
    const worker = make()
    await clock.advance('1s')
    for (const _ of [1, 2]) {
      fail('DATABASE_FORBIDDEN')
      await clock.advance('10m')
      state.wrong = undefined
      expect(await clock.until(queue.add('n').then((job) => job.result()))).toBe('ran')
    }
    expect(logged).toEqual(['DATABASE_FORBIDDEN', 'DATABASE_FORBIDDEN'])
    await clock.until(worker.close())
  })
})
