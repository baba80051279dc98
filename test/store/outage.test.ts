// A store that fails, and recovers by a resend: the outage is reported once, however many batches meet it.
import { describe, expect, it } from 'vitest'
import { isMillraceError } from '../../src/job/errors/errors.js'
import type { MillraceError } from '../../src/job/errors/errors.js'
import { Batcher } from '../../src/store/batcher.js'
import { Outage } from '../../src/store/outage.js'
import type { Store } from '../../src/store/store.js'
import { newQueue, newStore, newWorker } from '../setup.js'
import { ManualRuntime, ScriptedStore, group, listen, turn } from './manual-store.js'

describe('an outage', () => {
  it('is reported once, and again only after an answer to what was sent since', () => {
    const outage = new Outage({ name: 'scripted' })
    const reported: MillraceError[] = []
    const stop = outage.on((error) => void reported.push(error))
    const cause = new Error('gone')
    outage.failed(cause, 10)
    outage.failed(new Error('still gone'), 20)
    outage.answered(9) // it was on its way when the store failed
    outage.failed(new Error('still gone'), 30)
    expect(reported).toHaveLength(1)
    expect(reported[0]).toMatchObject({ code: 'STORE_UNAVAILABLE', cause })
    expect(reported[0]!.message).toMatch(/scripted store failed \(gone\)\. What was sent is sent again/)
    outage.answered(10)
    outage.failed(new Error('gone again'), 50)
    expect(reported).toHaveLength(2)
    stop()
    outage.answered(60)
    outage.failed(new Error('unheard'), 70)
    expect(reported).toHaveLength(2)
  })

  it('is found by lanes when a batch has to be sent again, all together', async () => {
    const [store, runtime] = [new ScriptedStore(), new ManualRuntime()]
    const outage = new Outage(store)
    const reported: unknown[] = []
    outage.on(({ cause }) => void reported.push(cause))
    const [one, other] = ['one', 'other'].map((writer) => new Batcher(store, runtime, writer, { outage }))
    const settled = [one!, other!].map((lane) => listen(lane.commit(group('a'))))
    await runtime.proceed()
    const causes = store.inFlight.map((sent) => {
      const cause = new Error('gone')
      sent.fail(cause)
      return cause
    })
    await turn()
    expect(reported).toEqual([causes[0]])
    await runtime.fire()
    for (const sent of store.inFlight) sent.land()
    await turn()
    expect(settled.every(({ value }) => value?.ok)).toBe(true)
    expect(reported).toHaveLength(1)
  })

  it('is none where the callers get errors that nothing was written', async () => {
    const [store, runtime] = [new ScriptedStore(), new ManualRuntime()]
    const outage = new Outage(store)
    const reported: unknown[] = []
    outage.on((error) => void reported.push(error))
    const settled = listen(new Batcher(store, runtime, 'one', { outage, replays: 0 }).commit(group('a')))
    await runtime.proceed()
    store.last.fail(new Error('gone'))
    await turn()
    expect(isMillraceError(settled.error, 'STORE_UNAVAILABLE')).toBe(true)
    expect(reported).toEqual([])
  })
})

describe('a queue and a worker', () => {
  /** A store whose commits fail while this returns true. */
  function failing(): { store: Store; fails: number } {
    const store = newStore()
    const commit = store.commit.bind(store)
    const state = { store, fails: 0 }
    store.commit = async (batch, tx) => {
      if (state.fails-- > 0) throw new Error('no answer')
      return commit(batch, tx)
    }
    return state
  }

  it('emit an `error`, once for each outage, though every call succeeds', async () => {
    const state = failing()
    const queue = newQueue({ store: state.store })
    const worker = newWorker(queue, () => {}, { autorun: false })
    await worker.run()
    const reported: string[] = []
    queue.on('error', ({ error }) => void reported.push(`queue: ${error.message}`))
    worker.on('error', ({ error }) => void reported.push(`worker: ${error.message}`))
    for (let outages = 1; outages <= 2; outages++) {
      state.fails = 3
      await (await queue.add('n')).result()
      expect(reported).toHaveLength(2 * outages)
    }
    expect(reported[0]).toMatch(/^worker: The memory store failed \(no answer\)\. What was sent is sent again/)
    expect(reported[1]).toMatch(/^queue: The memory store failed/)
  })

  it('that are closed, or that have no listener, receive nothing', async () => {
    const state = failing()
    const worker = newWorker(newQueue({ store: state.store }), () => {}, { autorun: false })
    await worker.run()
    const logged: string[] = []
    const logger = { warn: () => {}, error: (_details: object, message: string) => void logged.push(message) }
    const queue = newQueue({ store: state.store, name: 'other', logger })
    const stop = queue.on('completed', () => {})
    worker.on('error', () => void logged.push('worker'))
    stop()
    await worker.close()
    state.fails = 1
    await queue.add('n')
    expect(logged).toEqual([])
  })
})
