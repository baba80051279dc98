// Waiting for a locked file: by chance, briefly at first, and not for ever.
import { describe, expect, test } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { Runtime } from '../../../../src/store/runtime.js'
import { busyHere } from '../../../../src/stores/sqlite/file/errors.js'
import { retryWhileBusy } from '../../../../src/stores/sqlite/file/busy-retry.js'
import { refusal } from '../folder.js'

const path = '/data/jobs.db'

function busy(): never {
  throw busyHere('held')
}

/** A runtime that notes when each timer was set and for how long. */
function noting(runtime: Runtime): { readonly runtime: Runtime; readonly waits: { at: number; wait: number }[] } {
  const waits: { at: number; wait: number }[] = []
  const timer: Runtime['timer'] = (wait, work) => {
    waits.push({ at: runtime.elapsed(), wait })
    return runtime.timer(wait, work)
  }
  return { runtime: { ...runtime, timer }, waits }
}

describe('work on a file that may be locked', () => {
  test('is done at once where it is free', async () => {
    const { runtime } = virtualClock()
    let done = false
    const answer = retryWhileBusy(runtime, path, () => (done = true), 1000)
    expect(done).toBe(true)
    expect(await answer).toBe(true)
  })

  test('is tried again until the file is free', async () => {
    const clock = virtualClock()
    let held = true
    let tries = 0
    const answer = retryWhileBusy(
      clock.runtime,
      path,
      () => {
        tries++
        return held ? busy() : 'done'
      },
      60_000,
    )
    await clock.advance(500)
    expect(tries).toBeGreaterThan(50)
    held = false
    expect(await clock.until(answer)).toBe('done')
  })

  test('waits up to 2 ms at first, and longer, up to 25 ms, when that has lasted', async () => {
    const clock = virtualClock()
    const { runtime, waits } = noting(clock.runtime)
    await refusal(clock.until(retryWhileBusy(runtime, path, busy, 30_000)))
    const early = waits.filter(({ at }) => at < 80).map(({ wait }) => wait)
    const late = waits.filter(({ at }) => at > 2000).map(({ wait }) => wait)
    expect(new Set(early)).toEqual(new Set([0, 1, 2]))
    expect(Math.max(...late)).toBeGreaterThan(20)
    expect(Math.max(...late)).toBeLessThanOrEqual(25)
    expect(new Set(late).size).toBeGreaterThan(20)
  })

  test('gives up when patience is over, not before, and reports that nothing was written', async () => {
    const clock = virtualClock()
    const start = clock.runtime.elapsed()
    const error = await refusal(clock.until(retryWhileBusy(clock.runtime, path, busy, 3000)))
    expect(clock.runtime.elapsed() - start).toBe(3000)
    expect(error).toMatchObject({ code: 'DATABASE_LOCKED', details: { path, waited: 3000 } })
    expect(error.message).toMatch(/^Another program has held the database file \/data\/jobs\.db locked for 3000 ms/)
    expect(error.message).toContain('Nothing was written')
    expect(error.cause).toMatchObject({ code: 'SQLITE_BUSY' })
  })

  test('is tried only once where there is no patience', async () => {
    const { runtime } = virtualClock()
    let tries = 0
    const error = await refusal(
      retryWhileBusy(
        runtime,
        path,
        () => {
          tries++
          busy()
        },
        0,
      ),
    )
    expect(error.code).toBe('DATABASE_LOCKED')
    expect(tries).toBe(1)
  })

  test('is not tried again after another failure, which is reported as an error of the store', async () => {
    const { runtime } = virtualClock()
    const cause = Object.assign(new Error('database disk image is malformed'), { code: 'SQLITE_CORRUPT' })
    let tries = 0
    const work = (): never => {
      tries++
      throw cause
    }
    expect(await refusal(retryWhileBusy(runtime, path, work, 60_000))).toMatchObject({
      code: 'DATABASE_CORRUPT',
      cause,
    })
    expect(tries).toBe(1)
  })
})
