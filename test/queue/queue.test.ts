import { describe, expect, it } from 'vitest'
import { UnrecoverableError, defineJobs, job } from 'millrace'
import { collect, event, gate, newQueue, newStore, newWorker } from '../setup.js'

describe('adding', () => {
  it('resolves with the stored job, waiting, delayed or waiting for others', async () => {
    const queue = newQueue()
    const first = await queue.add('send', { to: 'a' })
    expect(first).toMatchObject({ name: 'send', queue: 'work', state: 'waiting', priority: 0, attempts: 3, attempt: 0 })
    expect(first.data).toEqual({ to: 'a' })
    expect((await queue.add('send', {}, { delay: '5 minutes' })).state).toBe('delayed')
    expect((await queue.add('send', {}, { runAt: new Date(Date.now() + 60_000) })).state).toBe('delayed')
    expect((await queue.add('send', {}, { after: first })).state).toBe('waiting-children')
  })

  it('keeps the data as it was, whatever the caller does to the object afterwards', async () => {
    const queue = newQueue()
    const data = { list: [1, 2] }
    const adding = queue.add('send', data)
    data.list.push(3)
    const added = await adding
    expect(added.data).toEqual({ list: [1, 2] })
    expect((await queue.get(added.id))?.data).toEqual({ list: [1, 2] })
  })

  it('takes a job without data', async () => {
    const queue = newQueue()
    const added = await queue.add('tick')
    expect((await queue.get(added.id))?.data).toBeUndefined()
  })

  it('keeps the order of adds that are not awaited', async () => {
    const queue = newQueue()
    await Promise.all([1, 2, 3, 4, 5].map((n) => queue.add('n', n)))
    const { jobs } = await queue.list()
    expect(jobs.map((job) => job.data)).toEqual([1, 2, 3, 4, 5])
  })

  it('returns the standing job when the id is added twice', async () => {
    const queue = newQueue()
    const first = await queue.add('send', 1, { id: 'one' })
    const second = await queue.add('send', 2, { id: 'one' })
    expect(first.duplicate).toBe(false)
    expect(second).toMatchObject({ id: 'one', duplicate: true, data: 1 })
  })

  it('refuses an id that another job has, of another name or in another queue', async () => {
    const store = newStore()
    const queue = newQueue({ store })
    const other = newQueue({ store, name: 'other' })
    await queue.add('send', 1, { id: 'one' })
    await expect(queue.add('fetch', 2, { id: 'one' })).rejects.toMatchObject({ code: 'DUPLICATE_ID' })
    await expect(other.add('send', 2, { id: 'one' })).rejects.toMatchObject({
      code: 'DUPLICATE_ID',
      details: { id: 'one', name: 'send', queue: 'work' },
    })
  })

  it('prefers options of add to options of job(), and those to options of the queue', async () => {
    const queue = newQueue({ defaults: { attempts: 7, priority: 4 } })
    expect(await queue.add('a', 1)).toMatchObject({ attempts: 7, priority: 4 })
    expect(await queue.add('a', 1, { priority: 1, attempts: undefined })).toMatchObject({ attempts: 7, priority: 1 })
  })

  it('adds many in order, each a group of its own', async () => {
    const queue = newQueue()
    await queue.add('n', 0, { id: 'taken' })
    const jobs = await queue.addBulk([
      { name: 'n', data: 1 },
      { name: 'n', data: 2, options: { id: 'taken' } },
      { name: 'n', data: 3 },
    ])
    expect(jobs.map((job) => [job.data, job.duplicate])).toEqual([
      [1, false],
      [0, true],
      [3, false],
    ])
    expect((await queue.counts()).waiting).toBe(3)
  })

  it('adds thousands at once', async () => {
    const queue = newQueue()
    const jobs = await queue.addBulk(Array.from({ length: 3000 }, (_, n) => ({ name: 'n', data: n })))
    expect(jobs).toHaveLength(3000)
    const { jobs: page } = await queue.list({ limit: 1000, order: 'newest' })
    expect(page[0]?.data).toBe(2999)
    expect(page[999]?.data).toBe(2000)
  })
})

describe('dedup', () => {
  it('returns the standing job until it has finished', async () => {
    const queue = newQueue()
    const first = await queue.add('send', 1, { dedup: { key: 'k' } })
    expect(await queue.add('send', 2, { dedup: { key: 'k' } })).toMatchObject({
      id: first.id,
      duplicate: true,
      data: 1,
    })
    await first.cancel()
    expect((await queue.add('send', 3, { dedup: { key: 'k' } })).duplicate).toBe(false)
  })

  it('is unique by queue, by name or everywhere, as its scope', async () => {
    const store = newStore()
    const one = newQueue({ store })
    const two = newQueue({ store, name: 'other' })
    await one.add('a', 1, { dedup: { key: 'k' } })
    expect((await one.add('b', 1, { dedup: { key: 'k' } })).duplicate).toBe(true)
    expect((await two.add('a', 1, { dedup: { key: 'k' } })).duplicate).toBe(false)
    await one.add('a', 1, { dedup: { key: 'n', scope: 'name' } })
    expect((await one.add('b', 1, { dedup: { key: 'n', scope: 'name' } })).duplicate).toBe(false)
    await one.add('a', 1, { dedup: { key: 'g', scope: 'global' } })
    expect((await two.add('b', 1, { dedup: { key: 'g', scope: 'global' } })).duplicate).toBe(true)
  })

  it('replaces a job that has not started', async () => {
    const queue = newQueue()
    const first = await queue.add('send', 'old', { dedup: { key: 'k' }, delay: '1h' })
    const second = await queue.add('send', 'new', { dedup: { key: 'k', mode: 'replace' }, priority: 5, delay: '2h' })
    expect(second).toMatchObject({ id: first.id, duplicate: true, data: 'new', priority: 5, state: 'delayed' })
    expect(second.runAt! - first.runAt!).toBeGreaterThan(3_000_000)
  })

  it('rejects with a coded error if the options ask for that', async () => {
    const queue = newQueue()
    const first = await queue.add('send', 1, { dedup: { key: 'k' } })
    await expect(queue.add('send', 1, { dedup: { key: 'k', mode: 'reject' } })).rejects.toMatchObject({
      code: 'DUPLICATE_JOB',
      details: { id: first.id },
    })
  })

  it('reports that the job that holds the key has been removed', async () => {
    const queue = newQueue()
    const first = await queue.add('send', 1, { dedup: { key: 'k', window: '1h' } })
    await first.remove()
    const second = await queue.add('send', 2, { dedup: { key: 'k', window: '1h' } })
    expect(second).toMatchObject({ id: first.id, duplicate: true, state: 'removed' })
    await expect(second.result()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
  })

  it('refuses to start a job over whose key has been taken', async () => {
    const queue = newQueue()
    const first = await queue.add('send', 1, { dedup: { key: 'k' } })
    await first.cancel()
    const second = await queue.add('send', 2, { dedup: { key: 'k' } })
    await expect(first.retry()).rejects.toMatchObject({ code: 'DEDUP_TAKEN', details: { holder: second.id } })
  })
})

describe('looking after jobs', () => {
  it('cancels once, and answers false for a job that has finished', async () => {
    const queue = newQueue()
    const seen = collect(queue, ['cancelled'])
    const added = await queue.add('send')
    expect(await Promise.all([added.cancel(), added.cancel(), queue.cancel(added.id)])).toEqual([true, false, false])
    expect(added.state).toBe('cancelled')
    const reported = event(queue, 'waiting')
    await queue.add('marker')
    await reported
    expect(seen).toEqual(['cancelled'])
  })

  it('retries what failed, promotes what is delayed, removes what is there', async () => {
    const queue = newQueue()
    const added = await queue.add('send', 1, { delay: '1h' })
    expect(await added.promote()).toBe(true)
    expect(added.state).toBe('waiting')
    expect(await added.promote()).toBe(false)
    await added.cancel()
    expect(await added.retry()).toBe(true)
    expect(added).toMatchObject({ state: 'waiting', attempt: 0 })
    expect(await added.remove()).toBe(true)
    expect(added.state).toBe('removed')
    expect(await added.remove()).toBe(false)
    expect(await queue.get(added.id)).toBeUndefined()
    await expect(added.refresh()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
  })

  it('updates data, priority and delay', async () => {
    const queue = newQueue()
    const added = await queue.add('send', { n: 1 })
    await added.update({ data: { n: 2 }, priority: 9 })
    expect(added).toMatchObject({ data: { n: 2 }, priority: 9, state: 'waiting' })
    await added.update({ delay: '1h' })
    expect(added.state).toBe('delayed')
    const fence = added.fence
    expect(await added.update({})).toBe(false)
    expect(added.fence).toBe(fence)
    await added.update({ data: undefined, priority: 3 })
    expect(added).toMatchObject({ data: { n: 2 }, priority: 3 })
  })

  it('denies what the rules do not allow, with the reason', async () => {
    const queue = newQueue()
    const added = await queue.add('send')
    await expect(added.retry()).rejects.toMatchObject({
      code: 'INVALID_STATE',
      message: expect.stringContaining('waiting'),
    })
    await added.cancel()
    await expect(added.promote()).rejects.toMatchObject({ code: 'INVALID_STATE' })
    await expect(added.update({ priority: 2 })).rejects.toMatchObject({ code: 'INVALID_STATE' })
  })

  it('does not touch jobs of another queue', async () => {
    const store = newStore()
    const other = newQueue({ store, name: 'other' })
    const queue = newQueue({ store })
    const added = await other.add('send')
    expect(await queue.get(added.id)).toBeUndefined()
    await expect(queue.cancel(added.id)).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    expect(await queue.remove(added.id)).toBe(false)
  })

  it('refuses to remove a job that others wait for, and names them', async () => {
    const queue = newQueue()
    const first = await queue.add('a')
    const second = await queue.add('b', 1, { after: first })
    await expect(first.remove()).rejects.toMatchObject({
      code: 'JOB_HAS_DEPENDENTS',
      details: { dependents: [second.id] },
    })
  })

  it('deals with all that match, by page, and can be repeated', async () => {
    const queue = newQueue()
    await queue.addBulk(Array.from({ length: 1234 }, (_, n) => ({ name: n % 2 === 0 ? 'even' : 'odd', data: n })))
    expect(await queue.update({ name: 'odd' }, { priority: 3 })).toBe(617)
    expect(await queue.cancel({ name: 'even' })).toBe(617)
    expect(await queue.cancel({ name: 'even' })).toBe(0)
    expect(await queue.retry({ state: 'cancelled' })).toBe(617)
    const first = await queue.add('even')
    await queue.add('odd', 1, { after: first })
    const kept = await queue.add('even')
    await queue.add('waits', 1, { after: kept })
    expect(await queue.remove({ name: ['even', 'odd'] })).toBe(1236) // but for the one that another waits for
    expect(await queue.remove({ all: true })).toBe(2)
    expect(await queue.list()).toEqual({ jobs: [] })
  })

  it('pages through lists without skipping or repeating while jobs come and go', async () => {
    const queue = newQueue()
    const added = await queue.addBulk(Array.from({ length: 50 }, (_, n) => ({ name: 'n', data: n })))
    const seen: unknown[] = []
    let cursor: string | undefined
    do {
      const page = await queue.list({ limit: 7, ...(cursor !== undefined && { cursor }) })
      seen.push(...page.jobs.map((job) => job.data))
      cursor = page.cursor
      if (seen.length === 7) await added[40]!.remove()
      if (seen.length === 14) await queue.add('n', 50)
    } while (cursor !== undefined)
    expect(seen).toEqual(Array.from({ length: 51 }, (_, n) => n).filter((n) => n !== 40))
  })

  it('counts by state', async () => {
    const queue = newQueue()
    await queue.add('a')
    await queue.add('a', 1, { delay: '1h' })
    await (await queue.add('a')).cancel()
    expect(await queue.counts()).toEqual({
      waiting: 1,
      delayed: 1,
      'waiting-children': 0,
      active: 0,
      completed: 0,
      failed: 0,
      cancelled: 1,
    })
  })
})

describe('pausing', () => {
  it('reads nothing into the characters of a name', async () => {
    const store = newStore()
    const other = newQueue({ store, name: 'mail-x' })
    const queue = newQueue({ store, name: 'mail*' })
    await other.pause()
    await queue.pause()
    const added = await queue.add('n')
    expect((await queue.explain(added.id)).reasons).toContainEqual({ why: 'paused', queue: 'mail*' })
  })

  it('holds back the whole queue or one name, and announces each change once', async () => {
    const queue = newQueue()
    const seen = collect(queue, ['paused', 'resumed'])
    const ran: string[] = []
    await queue.pause('b')
    await queue.pause('b')
    newWorker(queue, async (job) => void ran.push(job.name))
    const held = await queue.add('b')
    await (await queue.add('a')).result()
    expect(ran).toEqual(['a'])
    await queue.pause()
    const later = await queue.add('a')
    await queue.resume('b')
    expect((await later.refresh()).state).toBe('waiting')
    await queue.resume()
    await Promise.all([held.result(), later.result()])
    expect(ran).toEqual(['a', 'b', 'a'])
    expect(seen).toEqual(['paused', 'paused', 'resumed', 'resumed'])
  })
})

describe('results', () => {
  it('come by push, also for a job that is removed when it completes', async () => {
    const queue = newQueue()
    newWorker(queue, async (job) => ({ twice: (job.data as number) * 2 }))
    const kept = await queue.add('n', 2)
    const gone = await queue.add('n', 3, { removeOnComplete: true })
    expect(await kept.result({ timeout: '10s' })).toEqual({ twice: 4 })
    expect(await gone.result({ timeout: '10s' }).catch((error: { code: string }) => error.code)).toEqual({ twice: 6 })
    expect(await queue.get(gone.id)).toBeUndefined()
  })

  it('reject when the job fails, is cancelled or removed, or time runs out', async () => {
    const queue = newQueue()
    const running = gate()
    newWorker(queue, {
      bad: () => {
        throw new UnrecoverableError('no good')
      },
      slow: () => running.promise,
    })
    await expect((await queue.add('bad')).result()).rejects.toMatchObject({
      code: 'JOB_FAILED',
      message: expect.stringContaining('no good'),
    })
    const cancelled = await queue.add('nobody')
    const waiting = expect(cancelled.result()).rejects.toMatchObject({ code: 'JOB_CANCELLED' })
    await cancelled.cancel()
    await waiting
    const removed = await queue.add('nobody')
    const gone = expect(removed.result()).rejects.toMatchObject({ code: 'JOB_REMOVED' })
    await removed.remove()
    await gone
    const slow = await queue.add('slow')
    await expect(slow.result({ timeout: 1 })).rejects.toMatchObject({ code: 'RESULT_TIMEOUT' })
    await expect(slow.result({ signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow('stop')
    running.open()
    expect(await slow.result()).toBeUndefined()
  })

  it('are released when the queue closes', async () => {
    const queue = newQueue()
    const added = await queue.add('nobody')
    const waiting = expect(added.result()).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
    await queue.close()
    await waiting
    await expect(queue.add('nobody')).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
    await queue.close()
  })
})

describe('observing', () => {
  it('starts with the job as it is and ends by itself', async () => {
    const queue = newQueue()
    const go = gate()
    const added = await queue.add('n', 1)
    const states: string[] = []
    const watching = (async () => {
      for await (const seen of added.observe()) {
        states.push(seen.state)
        if (seen.state === 'waiting') newWorker(queue, () => go.promise)
        if (seen.state === 'active') go.open()
      }
    })()
    await watching
    expect(states).toEqual(['waiting', 'active', 'completed'])
  })
})

describe('explaining', () => {
  it('explains why a job is not running', async () => {
    const queue = newQueue()
    const why = async (id: string): Promise<unknown> => (await queue.explain(id)).reasons.map((reason) => reason.why)
    const waiting = await queue.add('n')
    expect(await why(waiting.id)).toEqual(['no-worker'])
    await queue.pause()
    await queue.pause('n')
    expect(await why(waiting.id)).toEqual(['paused', 'paused', 'no-worker'])
    const delayed = await queue.add('n', 1, { delay: '1h' })
    expect((await queue.explain(delayed.id)).reasons).toEqual([{ why: 'delayed', until: delayed.runAt }])
    const dependent = await queue.add('n', 1, { after: waiting })
    expect((await queue.explain(dependent.id)).reasons).toEqual([
      { why: 'dependencies', waitsFor: [waiting.id], broken: [] },
    ])
    const running = gate()
    const worker = newWorker(queue, () => running.promise, { maxGlobalConcurrency: 1 })
    await event(queue, 'worker-started')
    expect(await why(waiting.id)).toEqual(['paused', 'paused'])
    await queue.resume()
    await Promise.all([event(queue, 'active'), queue.resume('n')])
    const active = (await queue.explain(waiting.id)).reasons
    expect(active).toEqual([{ why: 'running', worker: worker.id, until: expect.any(Number) }])
    const next = await queue.add('n')
    expect((await queue.explain(next.id)).reasons).toEqual([{ why: 'limit', of: 'queue', concurrency: 1 }])
    running.open()
    await next.result()
    expect(await why(next.id)).toEqual(['finished'])
    await worker.close()
    const newer = newQueue({ store: queue.store, jobs: defineJobs({ n: job({ version: 2 }) }) })
    const unknown = await newer.add('n')
    const older = newWorker(newQueue({ store: queue.store, jobs: defineJobs({ n: job() }) }), { n: () => {} })
    await older.run()
    expect((await newer.explain(unknown.id)).text).toContain("no live worker handles version 2 of 'n'")
    await expect(queue.explain('nothing')).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
  })
})

describe('closing', () => {
  it('waits for the adds under way, not for what others keep writing to the same store', async () => {
    const store = newStore()
    const queue = newQueue({ store })
    const other = newQueue({ store, name: 'busy' })
    const busy = { on: true }
    const writing = (async () => {
      while (busy.on) await other.add('n')
    })()
    const adding = queue.addBulk(Array.from({ length: 2000 }, () => ({ name: 'n' })))
    await queue.close()
    expect(await adding).toHaveLength(2000)
    busy.on = false
    await writing
  })
})
