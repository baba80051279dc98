// Dates that have come: a job with one waits at once, however it got it.
import { describe, expect, it } from 'vitest'
import { FlowProducer } from 'millrace'
import type { Queue } from 'millrace'
import { served, stores } from '../stores.js'
import { event, newQueue, newWorker } from '../setup.js'

const make = stores()

const past = (): number => Date.now() - 60_000
const ahead = (): number => Date.now() + 600_000

/** The states that jobs enter, in order, without the claims; `until` resolves once a job of that name waits. */
function states(queue: Queue): { readonly seen: string[]; until(name: string): Promise<unknown> } {
  const seen: string[] = []
  for (const type of ['waiting', 'delayed', 'waiting-children', 'retrying', 'completed'] as const)
    queue.on(type, ({ name }) => seen.push(`${type} ${name}`))
  return { seen, until: (name) => event(queue, 'waiting', (each) => each.name === name) }
}

describe.each(served)('a job whose date has come when it is added, on %s', (kind) => {
  it('waits at once, and is never delayed', async () => {
    const queue = newQueue({ store: await make(kind) })
    const { seen, until } = states(queue)
    const last = until('last')
    const was = await queue.add('past', 1, { runAt: past() })
    const old = await queue.add('old', 1, { runAt: new Date(0), group: 'ann' })
    const none = await queue.add('none', 1, { delay: 0 })
    const [bulk] = await queue.addBulk([{ name: 'bulk', options: { runAt: past() } }])
    const far = await queue.add('far', 1, { runAt: ahead() })
    const near = await queue.add('near', 1, { runAt: Date.now() + 50_000 })
    await queue.add('last')
    await last
    expect([was, old, none, bulk, far, near].map((job) => job!.state)).toEqual([
      ...Array.from({ length: 4 }, () => 'waiting'),
      ...Array.from({ length: 2 }, () => 'delayed'),
    ])
    expect(seen).toEqual([
      'waiting past',
      'waiting old',
      'waiting none',
      'waiting bulk',
      'delayed far',
      'delayed near',
      'waiting last',
    ])
    expect(was.runAt).toBeUndefined()
  })

  it('waits as soon as what it waits for has ended, in flows and after others', async () => {
    const store = await make(kind)
    const queue = newQueue({ store })
    const { seen, until } = states(queue)
    const first = await queue.add('first')
    newWorker(queue, { first: () => 1 })
    await first.result()
    const last = until('last')
    await queue.add('after', 1, { after: first, runAt: past() })
    await new FlowProducer({ store }).add({
      queueName: 'work',
      name: 'parent',
      options: { runAt: past() },
      children: [{ queueName: 'work', name: 'child', options: { runAt: past() } }],
    })
    await queue.add('last')
    await last
    expect(seen.filter((each) => each !== 'completed first')).toEqual([
      'waiting first',
      'waiting after',
      'waiting child',
      'waiting-children parent',
      'waiting last',
    ])
  })
})

describe.each(served)('a job that is given a date that has come, on %s', (kind) => {
  it('by an update waits at once; one that waits keeps its place', async () => {
    const queue = newQueue({ store: await make(kind) })
    const { seen, until } = states(queue)
    const last = until('last')
    const first = await queue.add('first')
    const grouped = await queue.add('grouped', 1, { group: 'ann', delay: '1h' })
    const delayed = await queue.add('delayed', 1, { delay: '1h' })
    const none = await queue.add('none', 1, { delay: '1h' })
    const some = await queue.add('some', 1, { delay: '1h' })
    const parent = await queue.add('parent', 1, { after: delayed, delay: '1h' })
    for (const job of [first, grouped, delayed, parent]) expect(await job.update({ runAt: past() })).toBe(true)
    await first.update({ delay: 0 })
    await queue.update(none.id, { delay: 0 })
    expect(await queue.update({ name: 'some' }, { runAt: new Date(0), data: 2 })).toBe(1)
    const put = await queue.add('put')
    await put.update({ runAt: ahead() })
    await put.update({ runAt: ahead() })
    await queue.add('last')
    await last
    expect(seen).toEqual([
      'waiting first',
      ...['grouped', 'delayed', 'none', 'some'].map((name) => `delayed ${name}`),
      'waiting-children parent',
      ...['grouped', 'delayed', 'none', 'some'].map((name) => `waiting ${name}`),
      'waiting put',
      'delayed put',
      'waiting last',
    ])
    for (const job of [first, grouped, delayed, none, await queue.get(some.id)]) {
      expect(await job!.refresh()).toMatchObject({ state: 'waiting', runAt: undefined })
    }
    const ran: string[] = []
    newWorker(queue, ({ name }) => void ran.push(name))
    await parent.result()
    expect(ran.filter((name) => name !== 'grouped')).toEqual(['first', 'delayed', 'none', 'some', 'last', 'parent'])
    expect(seen).not.toContain('delayed parent')
  })

  it('by one that takes its place waits at once', async () => {
    const queue = newQueue({ store: await make(kind) })
    const { seen, until } = states(queue)
    const last = until('last')
    const dedup = { key: 'one', mode: 'replace' } as const
    await queue.add('job', 1, { dedup, delay: '1h' })
    const job = await queue.add('job', 2, { dedup, runAt: past() })
    const again = await queue.add('job', 3, { dedup, runAt: past() })
    await queue.add('last')
    await last
    expect([job.state, again.state, again.data]).toEqual(['waiting', 'waiting', 3])
    expect(seen).toEqual(['delayed job', 'waiting job', 'waiting last'])
  })

  it('by its own handler waits at once, and so does one that is retried or snoozed without a delay', async () => {
    const queue = newQueue({ store: await make(kind) })
    const { seen } = states(queue)
    const retrying = event(queue, 'retrying')
    const runs = new Map<string, number>()
    const first = ({ name }: { name: string }): boolean => {
      runs.set(name, (runs.get(name) ?? 0) + 1)
      return runs.get(name) === 1
    }
    newWorker(queue, {
      postponed: async (job) => void (first(job) && (await job.update({ runAt: past() }))),
      sent: async (job) => void (first(job) && (await job.update({ delay: 0 }))),
      snoozed: (job, ctx) => void (first(job) && ctx.snooze(0)),
      asleep: async (job, ctx) => void (first(job) && (await ctx.sleep('nap', 0))),
      thrown: (job) => {
        if (first(job)) throw new Error('again')
      },
    })
    for (const name of ['postponed', 'sent', 'snoozed', 'asleep', 'thrown']) {
      const job = await queue.add(name, 1, { backoff: 0 })
      await job.result()
      expect(await job.refresh()).toMatchObject({ attempt: name === 'thrown' ? 2 : 1, runAt: undefined })
    }
    const { at, runAt } = await retrying
    expect(runAt).toBe(at)
    const done = event(queue, 'waiting', ({ name }) => name === 'last')
    await queue.add('last')
    await done
    const twice = (name: string): string[] => [`waiting ${name}`, `waiting ${name}`, `completed ${name}`]
    expect(seen).toEqual([
      ...['postponed', 'sent', 'snoozed', 'asleep'].flatMap(twice),
      'waiting thrown',
      'retrying thrown',
      'waiting thrown',
      'completed thrown',
      'waiting last',
    ])
  })
})
