// How long a claim by hand waits, what ends its wait, and what becomes of jobs that come too late.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { ClaimOptions, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { webhooks } from 'millrace/webhooks'
import { observed } from '../../observed-store.js'
import { closing, event, gate, newQueue, newStore } from '../../setup.js'
import { receiver } from '../../features/webhooks/receiver.js'

function virtual(): { clock: ReturnType<typeof virtualClock>; store: Store; queue: Queue } {
  const clock = virtualClock()
  const store = closing(memory({ runtime: clock.runtime }))
  return { clock, store, queue: closing(new Queue('work', { store, logger: false })) }
}

describe('the wait of a claim', () => {
  it('ends by a notice of the store, and not by a poll: no time passes', async () => {
    const { clock, store, queue } = virtual()
    const claiming = queue.claim({ wait: '1h' })
    await clock.settle()
    const { id } = await new Queue('work', { store }).add('job')
    await clock.settle()
    expect(await claiming).toMatchObject([{ id }])
    expect(clock.runtime.elapsed()).toBe(0)
  })

  it('ends when a delayed job is due, though no worker runs', async () => {
    const { clock, queue } = virtual()
    const { id } = await queue.add('job', null, { delay: '20s' })
    const claiming = queue.claim({ wait: '1h' })
    expect(await clock.until(claiming)).toMatchObject([{ id }])
    expect(clock.runtime.elapsed()).toBeLessThan(21_000)
  })

  it('ends with the next run of a rate', async () => {
    const { clock, queue } = virtual()
    await queue.limit({ rate: { max: 1, per: '2s' } })
    await queue.addBulk([{ name: 'a' }, { name: 'b' }])
    expect(await clock.until(queue.claim({ max: 2 }))).toMatchObject([{ name: 'a' }])
    expect(await clock.until(queue.claim({ wait: '1h' }))).toMatchObject([{ name: 'b' }])
    expect(clock.runtime.elapsed()).toBeLessThan(3_000)
  })

  it('is over after the time given, with an empty list', async () => {
    const { clock, queue } = virtual()
    expect(await clock.until(queue.claim({ wait: '7s' }))).toEqual([])
    expect(clock.runtime.elapsed()).toBe(7_000)
  })

  it('finds a job by polling, where the store gives no notice', async () => {
    const { clock, store: silent } = virtual()
    const store = { ...observed(silent, () => {}), watch: () => () => {} }
    const queue = closing(new Queue('work', { store, logger: false }))
    const claiming = queue.claim({ wait: '1h' })
    await clock.settle()
    const { id } = await queue.add('job')
    expect(await clock.until(claiming)).toMatchObject([{ id }])
  })

  it('ends with the reason of a signal, at once if that had aborted before', async () => {
    const queue = newQueue()
    const aborting = new AbortController()
    const claiming = queue.claim({ wait: '1h', signal: aborting.signal })
    await event(queue, 'worker-started')
    const reason = new Error('enough')
    aborting.abort(reason)
    await expect(claiming).rejects.toBe(reason)
    await queue.add('job')
    await expect(queue.claim({ signal: aborting.signal })).rejects.toBe(reason)
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
  })

  it('ends with QUEUE_CLOSED when the queue object is closed, and no further claim begins', async () => {
    const queue = newQueue()
    const claiming = queue.claim({ wait: '1h' })
    const refused = expect(claiming).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
    await event(queue, 'worker-started')
    await queue.close()
    await refused
    await expect(queue.claim()).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
  })
})

describe('a job that comes too late', () => {
  /** A store whose claims that find a job are answered only when the gate is open. */
  function slow(): { store: Store; asked: Promise<void>; answer: () => void } {
    const [asked, answered] = [gate(), gate()]
    const inner = newStore()
    const commit: Store['commit'] = async (batch, tx) => {
      const receipt = await inner.commit(batch, tx)
      if (receipt.asks.flat().length === 0) return receipt
      asked.open()
      await answered.promise
      return receipt
    }
    return { store: { ...observed(inner, () => {}), commit }, asked: asked.promise, answer: () => answered.open() }
  }

  it('is released if the claim was aborted while it was on its way', async () => {
    const { store, asked, answer } = slow()
    const queue = newQueue({ store })
    const { id } = await queue.add('job')
    const aborting = new AbortController()
    const claiming = queue.claim({ signal: aborting.signal })
    await asked
    aborting.abort(new Error('enough'))
    await expect(claiming).rejects.toThrow('enough')
    const waiting = event(queue, 'waiting')
    answer()
    await waiting
    expect(await queue.get(id)).toMatchObject({ state: 'waiting', attempt: 0 })
  })

  it('is released before the close of the queue object resolves', async () => {
    const { store, asked, answer } = slow()
    const queue = newQueue({ store })
    const { id } = await queue.add('job')
    const claiming = queue.claim()
    const refused = expect(claiming).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
    await asked
    const closed = queue.close()
    await refused
    answer()
    await closed
    expect(await store.get([id])).toMatchObject([{ state: 'waiting', attempt: 0 }])
  })
})

describe('answers that are lost', () => {
  /** A store that applies what it is sent, and loses its answers on command. */
  function losing(inner: Store): { store: Store; loses: (yes: boolean) => void } {
    let lost = false
    const commit: Store['commit'] = async (batch, tx) => {
      const receipt = await inner.commit(batch, tx)
      if (lost) throw new Error('the line was lost')
      return receipt
    }
    return { store: { ...observed(inner, () => {}), commit }, loses: (yes) => void (lost = yes) }
  }

  it('a claim without an answer is asked again under its number, and its job is not lost', async () => {
    const { store, loses } = losing(newStore())
    const queue = newQueue({ store })
    await queue.claim() // registers
    const { id } = await queue.add('job', null, { attempts: 1 })
    loses(true)
    const claiming = queue.claim({ wait: '60s' })
    await event(queue, 'active')
    loses(false)
    expect(await claiming).toMatchObject([{ id, attempt: 1 }])
  })

  it('a claim that does not wait rejects when the store does not answer, and releases what it took', async () => {
    const clock = virtualClock()
    const { store, loses } = losing(memory({ runtime: clock.runtime }))
    const queue = closing(new Queue('work', { store, logger: false }))
    await clock.until(queue.claim()) // registers
    const { id } = await clock.until(queue.add('job'))
    loses(true)
    await expect(clock.until(queue.claim())).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    loses(false)
    await clock.advance('2s')
    expect(await queue.get(id)).toMatchObject({ state: 'waiting', attempt: 0, stalls: 0 })
  })

  it('a settlement that was applied without an answer is recognized when it is sent again', async () => {
    const clock = virtualClock()
    const { store, loses } = losing(memory({ runtime: clock.runtime }))
    const queue = closing(new Queue('work', { store, logger: false }))
    const [done, failed] = await clock.until(
      queue.addBulk([
        { name: 'a', options: { attempts: 1 } },
        { name: 'b', options: { attempts: 1 } },
      ]),
    )
    const [first, second] = await clock.until(queue.claim({ max: 2 }))
    loses(true)
    await expect(clock.until(first!.complete(1))).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    await expect(clock.until(second!.fail('no'))).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    loses(false)
    await clock.until(first!.complete(1))
    expect(await clock.until(second!.fail('no'))).toBe('failed')
    expect(await done!.refresh()).toMatchObject({ state: 'completed', returned: 1 })
    expect(await failed!.refresh()).toMatchObject({ state: 'failed' })
  })
})

it('webhooks of jobs that were completed by hand are delivered, though no worker runs', async () => {
  const hook = await receiver()
  const queue = closing(
    new Queue('work', {
      store: newStore(),
      logger: false,
      webhook: webhooks({ secret: 'a secret of this test', allowPrivate: true, url: hook.url }),
    }),
  )
  const delivered = event(queue, 'webhook-delivered')
  const { id } = await queue.add('job')
  const [claimed] = await queue.claim()
  await claimed!.complete('done')
  expect(await delivered).toMatchObject({ id })
})

it('a custom backoff is that of the claim, and an unknown one is refused with nothing written', async () => {
  const queue = newQueue()
  const backoff = { type: 'custom', name: 'polite' } as const
  const [one, two] = await queue.addBulk(['a', 'b'].map((name) => ({ name, options: { backoff } })))
  const [known] = await queue.claim({ backoff: { polite: () => '3h' } })
  await known!.fail('busy')
  expect((await one!.refresh()).runAt! - one!.createdAt).toBeGreaterThan(3_600_000)
  const [unknown] = await queue.claim()
  await expect(unknown!.fail('busy')).rejects.toMatchObject({ code: 'UNKNOWN_BACKOFF' })
  expect((await two!.refresh()).state).toBe('active')
  expect(await unknown!.fail('busy', { retry: '1s' })).toBe('retrying')
})

describe('bad options', () => {
  const cases: readonly [string, ClaimOptions, string][] = [
    ['no names', { names: [] }, 'INVALID_OPTION'],
    ['a name that is not in a list', { names: 'a' as never }, 'INVALID_OPTION'],
    ['an empty name', { names: [''] }, 'INVALID_NAME'],
    ['no jobs', { max: 0 }, 'INVALID_OPTION'],
    ['half a job', { max: 1.5 }, 'INVALID_OPTION'],
    ['too many jobs', { max: 1001 }, 'INVALID_OPTION'],
    ['a lease that is too short', { lease: 1 }, 'INVALID_OPTION'],
    ['a lease that cannot be read', { lease: 'long' }, 'INVALID_DURATION'],
    ['a negative wait', { wait: -1 }, 'INVALID_DURATION'],
    ['an empty worker id', { worker: '' }, 'INVALID_ID'],
    ['a signal that is none', { signal: {} as AbortSignal }, 'INVALID_OPTION'],
    ['a backoff that is no function', { backoff: { polite: 7 } as never }, 'INVALID_OPTION'],
    ['an unknown option', { maxx: 1 } as never, 'UNKNOWN_OPTION'],
    ['an option of another queue', { visibilityTimeout: 1 } as never, 'UNKNOWN_OPTION'],
    ['options that are none', 7 as never, 'INVALID_OPTION'],
  ]
  it.each(cases)('%s is refused, and nothing is claimed', async (_what, options, code) => {
    const queue = newQueue()
    await queue.add('a')
    await expect(queue.claim(options)).rejects.toMatchObject({ code })
    expect(await queue.counts()).toMatchObject({ waiting: 1, active: 0 })
  })

  it('of the calls of a claimed job are refused, and the job stays with its holder', async () => {
    const queue = newQueue()
    await queue.add('a')
    const [claimed] = await queue.claim()
    await expect(claimed!.fail('x', { retry: 'soon' })).rejects.toMatchObject({ code: 'INVALID_DURATION' })
    await expect(claimed!.fail('x', { retries: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
    await expect(claimed!.snooze('soon')).rejects.toMatchObject({ code: 'INVALID_DURATION' })
    await expect(claimed!.heartbeat({ lease: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(claimed!.progress(new Map() as never)).rejects.toMatchObject({ code: 'INVALID_DATA' })
    await expect(claimed!.complete(1n)).rejects.toMatchObject({ code: 'INVALID_DATA' })
    expect(await claimed!.heartbeat()).toEqual({ held: true })
  })
})
