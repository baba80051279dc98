// How often the fast path of completions is tried where the server refuses it.
import { expect, test } from 'vitest'
import { complete } from '../../../src/conformance/changes.js'
import type { Batch } from '../../../src/store/store.js'
import { FastPaths } from '../../../src/stores/postgres/fast-paths.js'

const job = { id: 'a', chainId: 'a', fence: 1, keep: {} } as never

/** Sends so many batches that complete a job; `refuses` decides call by call. Returns the calls made for each. */
async function sent(batches: number, refuses: () => boolean): Promise<readonly number[]> {
  const paths = new FastPaths('here', () => undefined)
  const context = { lanes: () => undefined, isOwnId: () => false, now: null } as never
  const calls: number[] = []
  for (let seq = 1; seq <= batches; seq++) {
    const batch: Batch = { writer: 'w', seq, groups: [complete(job)], renewals: [], asks: [] }
    let made = 0
    await paths.send(batch, context, ({ name }) => {
      expect(name).toBe('fast_complete')
      made++
      return refuses() ? Promise.reject(Object.assign(new Error('MR006'), { code: 'MR006' })) : Promise.resolve('{}')
    })
    paths.answered(batch)
    calls.push(made)
  }
  return calls
}

test('completions that a lock kept for a moment are sent once more, and the fast path goes on', async () => {
  let calls = 0
  expect(await sent(4, () => ++calls === 2)).toEqual([1, 2, 1, 1])
})

test('the fast path of completions is tried less and less while the reason persists, and always once it is over', async () => {
  let over = false
  const refused = await sent(60, () => !over)
  const tried = refused.flatMap((made, at) => (made > 0 ? [at] : []))
  expect(tried).toEqual([0, 2, 5, 10, 19, 36, 57])
  expect(refused[0]).toBe(2)
  over = true
  expect(await sent(3, () => !over)).toEqual([1, 1, 1])
})
