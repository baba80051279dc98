import { describe, expect, it } from 'vitest'
import { defineJobs, job, Queue, Worker } from 'millrace'
import type { Job, LimitOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from '../../../src/testing/world/clock.js'
import { event, gate, newQueue, newStore, newWorker } from '../../setup.js'

describe('queue.limit', () => {
  it('answers all that stands, and changes what is given alone', async () => {
    const queue = newQueue()
    expect(await queue.limits()).toEqual({ names: {}, group: {}, groups: {} })
    await queue.limit({ concurrency: 5, rate: { max: 10, per: '1 minute' }, maxBacklog: 100 })
    await queue.limit({ names: { mail: { concurrency: 2 } }, group: { concurrency: 1, maxBacklog: 9 } })
    const all = {
      concurrency: 5,
      rate: { max: 10, per: 60_000 },
      maxBacklog: 100,
      names: { mail: { concurrency: 2 } },
      group: { concurrency: 1, maxBacklog: 9, onFull: 'drop-oldest' },
      groups: { acme: { weight: 2 } },
    }
    expect(await queue.limit({ group: { onFull: 'drop-oldest' }, groups: { acme: { weight: 2 } } })).toEqual(all)
    expect(await queue.limits()).toEqual(all)
  })

  it('refuses more bounds than adds and claims can read each time, and takes fewer', async () => {
    const queue = newQueue()
    const many = (count: number, bound: { concurrency: number } | null): LimitOptions => ({
      groups: Object.fromEntries(Array.from({ length: count }, (_, n) => [`${n} `.padEnd(250, 'x'), bound])),
    })
    await queue.limit(many(3_000, { concurrency: 1 }))
    await expect(queue.limit(many(5_000, { concurrency: 1 }))).rejects.toMatchObject({ code: 'DATA_TOO_LARGE' })
    expect(Object.keys((await queue.limits()).groups)).toHaveLength(3_000)
    await queue.limit(many(2_999, null))
    expect(Object.keys((await queue.limits()).groups)).toHaveLength(1)
  })

  it('lifts what is null', async () => {
    const queue = newQueue()
    await queue.limit({ concurrency: 5, rate: { max: 1, per: 1000 }, maxBacklog: 3, names: { a: { concurrency: 1 } } })
    await queue.limit({ group: { rate: { max: 1, per: 5 } }, groups: { x: { weight: 3, concurrency: 2 } } })
    await queue.limit({ rate: null, maxBacklog: null, names: { a: null }, groups: { x: { weight: null } } })
    expect(await queue.limits()).toEqual({
      concurrency: 5,
      names: {},
      group: { rate: { max: 1, per: 5 } },
      groups: { x: { concurrency: 2 } },
    })
    expect(await queue.limit({ concurrency: null, group: null, groups: { x: null } })).toEqual({
      names: {},
      group: {},
      groups: {},
    })
  })

  it('writes nothing where it is so already', async () => {
    const store = newStore()
    const queue = newQueue({ store })
    const version = async (): Promise<number | undefined> =>
      (await store.details({ cells: ['limit:work'] })).cells[0]?.version
    await queue.limit({ concurrency: 5, names: { b: { concurrency: 1 }, a: { concurrency: 1 } } })
    await queue.limit({ names: { a: { concurrency: 1 } }, concurrency: 5 })
    expect(await version()).toBe(1)
  })

  it('is not overridden by the option of a worker, which is only a seed', async () => {
    const queue = newQueue()
    const first = newWorker(queue, () => {}, { maxGlobalConcurrency: 4 })
    await first.run()
    expect(await queue.limits()).toMatchObject({ concurrency: 4 })
    await queue.limit({ concurrency: 2 })
    await newWorker(queue, () => {}, { maxGlobalConcurrency: 7 }).run()
    expect(await queue.limits()).toMatchObject({ concurrency: 2 })
    await queue.limit({ concurrency: null })
    await newWorker(queue, () => {}, { maxGlobalConcurrency: 7 }).run()
    expect(await queue.limits()).not.toHaveProperty('concurrency')
  })

  it('belongs to the transaction that it is made in, where there are any', async () => {
    const queue = newQueue({ jobs: defineJobs({ mail: job() }) })
    await expect(queue.limit({ names: { mial: { concurrency: 1 } } as never })).rejects.toMatchObject({
      code: 'UNKNOWN_JOB',
    })
    await queue.limit({ names: { mail: { concurrency: 1 } } })
  })

  const bad: readonly [string, unknown, string][] = [
    ['half a job at a time', { concurrency: 1.5 }, 'INVALID_OPTION'],
    ['less than nothing at a time', { concurrency: -1 }, 'INVALID_OPTION'],
    ['a rate of none', { rate: { max: 0, per: '1s' } }, 'INVALID_OPTION'],
    ['a rate without a time', { rate: { max: 5, per: 0 } }, 'INVALID_OPTION'],
    ['a rate that cannot be read', { rate: { max: 5, per: 'often' } }, 'INVALID_DURATION'],
    ['a misspelt rate', { rate: { max: 5, window: '1s' } }, 'UNKNOWN_OPTION'],
    ['an unknown bound', { concurency: 5 }, 'UNKNOWN_OPTION'],
    ['an unknown bound of a name', { names: { a: { weight: 1 } } }, 'UNKNOWN_OPTION'],
    ['a weight for all groups', { group: { weight: 1 } }, 'UNKNOWN_OPTION'],
    ['no weight at all', { groups: { a: { weight: 0 } } }, 'INVALID_OPTION'],
    ['a weight past all bounds', { groups: { a: { weight: 1e9 } } }, 'INVALID_OPTION'],
    ['a group without a name', { groups: { '': { weight: 1 } } }, 'INVALID_NAME'],
    ['an unknown way out', { group: { onFull: 'drop' } }, 'INVALID_OPTION'],
    ['names that are none', { names: ['a'] }, 'INVALID_OPTION'],
    ['a backlog that is none', { maxBacklog: Infinity }, 'INVALID_OPTION'],
  ]
  for (const [what, options, code] of bad) {
    it(`refuses ${what}`, async () => {
      const queue = newQueue()
      await expect(queue.limit(options as LimitOptions)).rejects.toMatchObject({ code })
      expect(await queue.limits()).toEqual({ names: {}, group: {}, groups: {} })
    })
  }
})

describe('a full group', () => {
  it('refuses jobs beyond it, and names the group', async () => {
    const queue = newQueue()
    await queue.limit({ group: { maxBacklog: 2 } })
    await queue.add('n', 1, { group: 'a' })
    await queue.add('n', 2, { group: 'a' })
    const refused = queue.add('n', 3, { group: 'a' })
    await expect(refused).rejects.toMatchObject({ code: 'QUEUE_FULL', details: { queue: 'work', group: 'a' } })
    await expect(refused).rejects.toThrow("Group 'a' of queue 'work'")
    await queue.add('n', 1, { group: 'b' })
    await queue.add('n', 1)
    expect(await queue.counts()).toMatchObject({ waiting: 4 })
  })

  it('drops its oldest job with drop-oldest, which is cancelled with the reason', async () => {
    const queue = newQueue()
    await queue.limit({ group: { maxBacklog: 2, onFull: 'drop-oldest' } })
    const oldest = await queue.add('n', 1, { group: 'a', delay: '1 hour' })
    const kept = await queue.add('n', 2, { group: 'a' })
    const cancelled = event(queue, 'cancelled')
    const added = await queue.add('n', 3, { group: 'a' })
    expect((await cancelled).id).toBe(oldest.id)
    expect(await oldest.refresh()).toMatchObject({ state: 'cancelled', error: { code: 'JOB_DROPPED' } })
    expect((await kept.refresh()).state).toBe('waiting')
    expect(added).toMatchObject({ state: 'waiting', duplicate: false })
  })

  it('drops one for each of many added at once, and none too many', async () => {
    const queue = newQueue()
    await queue.limit({ group: { maxBacklog: 3, onFull: 'drop-oldest' } })
    await queue.addBulk(Array.from({ length: 20 }, (_, n) => ({ name: 'n', data: n, options: { group: 'a' } })))
    expect(await queue.counts()).toMatchObject({ waiting: 3, cancelled: 17 })
    const { jobs } = await queue.list({ state: 'waiting', group: 'a' })
    expect(new Set(jobs.map(({ data }) => data))).toEqual(new Set([17, 18, 19]))
  })

  it('drops as many as it takes, where its bound was lowered meanwhile', async () => {
    const queue = newQueue()
    await queue.addBulk(Array.from({ length: 5 }, (_, n) => ({ name: 'n', data: n, options: { group: 'a' } })))
    await queue.limit({ group: { maxBacklog: 2, onFull: 'drop-oldest' } })
    await queue.add('n', 5, { group: 'a' })
    const { jobs } = await queue.list({ state: 'waiting', group: 'a' })
    expect(jobs.map(({ data }) => data)).toEqual([4, 5])
  })

  it('drops nothing where the job is a duplicate, or there is nothing to drop', async () => {
    const queue = newQueue()
    await queue.limit({ group: { maxBacklog: 1, onFull: 'drop-oldest' }, groups: { none: { maxBacklog: 0 } } })
    const first = await queue.add('n', 1, { group: 'a', id: 'mine' })
    expect((await queue.add('n', 2, { group: 'a', id: 'mine' })).duplicate).toBe(true)
    expect((await first.refresh()).state).toBe('waiting')
    await expect(queue.add('n', 1, { group: 'none' })).rejects.toMatchObject({ code: 'QUEUE_FULL' })
  })
})

describe('groups', () => {
  it('refuse what cannot go by turns', async () => {
    const queue = newQueue()
    await expect(queue.add('n', 1, { group: 'a', lifo: true })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.add('n', 1, { group: '' })).rejects.toMatchObject({ code: 'INVALID_NAME' })
  })

  it('are on the handle, and jobs are listed and cancelled by them', async () => {
    const queue = newQueue()
    const mine = await queue.add('n', 1, { group: 'a' })
    await queue.add('n', 2, { group: 'b' })
    expect(mine.group).toBe('a')
    expect((await queue.list({ group: 'a' })).jobs.map(({ id }) => id)).toEqual([mine.id])
    expect(await queue.cancel({ group: 'b' })).toBe(1)
    expect((await mine.refresh()).state).toBe('waiting')
  })

  it('with very many jobs keep no other group waiting for more than a round', async () => {
    const queue = newQueue()
    const begun: string[] = []
    const done = gate<number>()
    await queue.addBulk(Array.from({ length: 3000 }, () => ({ name: 'n', options: { group: 'big' } })))
    const handler = async ({ group }: Job): Promise<void> => {
      begun.push(group ?? '-')
      if (begun.length === 1500) await queue.add('n', undefined, { group: 'small' })
      if (group === 'small') done.open(begun.length - 1500)
    }
    newWorker(queue, handler)
    // One that was leased ahead, and one that was claimed while it was added.
    expect(await done.promise).toBeLessThanOrEqual(4)
  })

  it('share by their weights', async () => {
    const queue = newQueue()
    await queue.limit({ groups: { a: { weight: 3 }, b: { weight: 2 } } })
    for (const group of ['a', 'b', 'c']) {
      await queue.addBulk(Array.from({ length: 6000 }, () => ({ name: 'n', options: { group } })))
    }
    const begun: Record<string, number> = { a: 0, b: 0, c: 0 }
    const enough = gate()
    let count = 0
    const handler = ({ group }: Job): void => {
      if (count++ < 10_000) begun[group!]!++
      else enough.open()
    }
    newWorker(queue, handler, { concurrency: 20 })
    await enough.promise
    for (const [group, share] of [
      ['a', 5000],
      ['b', 3333],
      ['c', 1667],
    ] as const) {
      expect(Math.abs(begun[group]! - share) / share).toBeLessThan(0.1)
    }
  })
})

describe('a rate', () => {
  it('is kept by workers, who wake when it lets more through', async () => {
    const clock = virtualClock()
    const store = memory({ runtime: clock.runtime })
    const queue = new Queue('work', { store, logger: false })
    await queue.limit({ rate: { max: 3, per: '10s' } })
    const began: number[] = []
    const options = { logger: false, concurrency: 10, pollEvery: '1h' } as const
    const workers = [1, 2].map(() => new Worker(queue, () => void began.push(clock.runtime.now()), options))
    const jobs = await queue.addBulk(Array.from({ length: 9 }, () => ({ name: 'n' })))
    await clock.until(Promise.all(jobs.map((each) => each.result())))
    const from = began[0]!
    for (const [at, time] of began.entries()) {
      const round = Math.floor(at / 3)
      expect(time - from).toBeGreaterThanOrEqual(round * 10_000)
      expect(time - from).toBeLessThan(round * 10_000 + 1000) // by a timer, not by the poll once an hour
    }
    await clock.until(Promise.all(workers.map((worker) => worker.close())))
  })

  it('of a group does not keep others waiting', async () => {
    const queue = newQueue()
    await queue.limit({ group: { rate: { max: 1, per: '1h' } } })
    await queue.addBulk(Array.from({ length: 5 }, () => ({ name: 'n', options: { group: 'a' } })))
    const other = await queue.add('n', 1, { group: 'b' })
    newWorker(queue, (each: Job) => each.group, { concurrency: 2 })
    expect(await other.result()).toBe('b')
    expect((await queue.explain((await queue.list({ state: 'waiting' })).jobs[0]!.id)).reasons).toContainEqual({
      why: 'rate',
      of: 'group',
      max: 1,
      per: 3_600_000,
    })
  })
})

describe('the limit of a group', () => {
  it('is never exceeded, and explained', async () => {
    const queue = newQueue()
    await queue.limit({ group: { concurrency: 2 } })
    let now = 0
    let most = 0
    const hold = gate()
    newWorker(
      queue,
      async () => {
        most = Math.max(most, ++now)
        await hold.promise
        now--
      },
      { concurrency: 10 },
    )
    const jobs = await queue.addBulk(Array.from({ length: 6 }, () => ({ name: 'n', options: { group: 'a' } })))
    const other = event(queue, 'active', ({ id }) => id === 'other')
    await queue.add('n', 1, { id: 'other', group: 'b' })
    await other
    const waiting = (await queue.list({ state: 'waiting' })).jobs
    expect(waiting).toHaveLength(4)
    const { reasons, text } = await queue.explain(waiting[0]!.id)
    expect(reasons).toContainEqual({ why: 'limit', of: 'group', concurrency: 2 })
    expect(text).toContain('the group is at its limit of 2 at a time')
    hold.open()
    await Promise.all(jobs.map((each) => each.result()))
    expect(most).toBeLessThanOrEqual(3)
  })
})
