// Jobs that are claimed by hand, on every store: what each call does, and to whom a job belongs.
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { Queue, UnrecoverableError, Worker, defineJobs, isMillraceError, job } from 'millrace'
import { MAX_HOLDS } from '../../../src/job/holds.js'
import { WORKERS } from '../../../src/store/settings.js'
import { kinds, stores } from '../../stores.js'
import { closing, event, gate } from '../../setup.js'

describe.each(kinds)('%s', (kind) => {
  const make = stores()
  const newQueue = async (name = 'work') => closing(new Queue(name, { store: await make(kind), logger: false }))

  it('a claimed job is active under the worker id given, and complete ends it with its result', async () => {
    const queue = await newQueue()
    const added = await queue.add('email', { to: 'ann' })
    const [claimed] = await queue.claim({ worker: 'loop-1' })
    expect(claimed).toMatchObject({ id: added.id, name: 'email', queue: 'work', data: { to: 'ann' } })
    expect(claimed).toMatchObject({ worker: 'loop-1', attempt: 1, attempts: 3, fence: claimed!.job.fence })
    expect(await added.refresh()).toMatchObject({ state: 'active', worker: 'loop-1' })
    await claimed!.complete({ sent: true })
    expect(await added.result()).toEqual({ sent: true })
    expect(await added.refresh()).toMatchObject({ state: 'completed', worker: 'loop-1' })
    expect(await queue.claim()).toEqual([])
  })

  it('claims take at most so many, of the names given, in claim order', async () => {
    const queue = await newQueue()
    for (const [name, data, priority] of [
      ['a', 1, 0],
      ['b', 2, 0],
      ['a', 3, -1],
      ['a', 4, 0],
    ] as const) {
      await queue.add(name, data, { priority })
    }
    const first = await queue.claim({ names: ['a'], max: 2 })
    expect(first.map(({ data }) => data)).toEqual([3, 1])
    expect((await queue.claim({ max: 10 })).map(({ data }) => data)).toEqual([2, 4])
  })

  it('a waiting claim returns as soon as a job is added', async () => {
    const queue = await newQueue()
    const claiming = queue.claim({ wait: '60s', max: 5 })
    await event(queue, 'worker-started')
    const { id } = await queue.add('late')
    expect((await claiming).map((each) => each.id)).toEqual([id])
  })

  it('a failed attempt is retried after its backoff, without any worker, and then for good', async () => {
    const queue = await newQueue()
    const added = await queue.add('job', undefined, { attempts: 2, backoff: '20ms' })
    const [first] = await queue.claim()
    expect(await first!.fail(new Error('not yet'))).toBe('retrying')
    const [second] = await queue.claim({ wait: '60s' })
    expect(second).toMatchObject({ id: added.id, attempt: 2 })
    expect(await second!.fail(new Error('never'))).toBe('failed')
    expect(await added.refresh()).toMatchObject({ state: 'failed', error: { message: 'never' } })
    expect(added.errors.map(({ message }) => message)).toEqual(['not yet', 'never'])
  })

  it('an unrecoverable error, and retry: false, fail a job for good; retry: true and a duration do not', async () => {
    const queue = await newQueue()
    const [unrecoverable, fatal, forced, later] = await queue.addBulk(
      Array.from({ length: 4 }, () => ({ name: 'job', options: { attempts: 5, backoff: '1h' } })),
    )
    const claimed = await queue.claim({ max: 4 })
    expect(await claimed[0]!.fail(new UnrecoverableError('no'))).toBe('failed')
    expect(await claimed[1]!.fail(new Error('no'), { retry: false })).toBe('failed')
    expect(await claimed[2]!.fail(new UnrecoverableError('no'), { retry: true })).toBe('retrying')
    expect(await claimed[3]!.fail('text', { retry: '2h' })).toBe('retrying')
    expect((await unrecoverable!.refresh()).state).toBe('failed')
    expect((await fatal!.refresh()).state).toBe('failed')
    expect((await forced!.refresh()).state).toBe('delayed')
    expect((await later!.refresh()).runAt! - (await forced!.refresh()).runAt!).toBeGreaterThan(1_800_000)
  })

  it('a job that is snoozed or released gets its attempt back', async () => {
    const queue = await newQueue()
    const [snoozed, released] = await queue.addBulk([{ name: 'snoozed' }, { name: 'released' }])
    const [one, two] = await queue.claim({ max: 2 })
    await one!.snooze('1h')
    await two!.release()
    expect(await snoozed!.refresh()).toMatchObject({ state: 'delayed', attempt: 0 })
    expect(await released!.refresh()).toMatchObject({ state: 'waiting', attempt: 0 })
    expect(await queue.claim()).toMatchObject([{ id: released!.id, attempt: 1 }])
  })

  it('hold returns a job with its attempt and in its place, and nobody claims its like until the hold is over', async () => {
    const queue = await newQueue()
    const [first, second, other] = await queue.addBulk([
      { name: 'call' },
      { name: 'call' },
      { name: 'mail', options: { group: 'ann' } },
    ])
    const [claimed] = await queue.claim({ worker: 'loop-1' })
    await claimed!.hold('1h')
    expect(await first!.refresh()).toMatchObject({ state: 'waiting', attempt: 0 })
    expect(await queue.holds()).toMatchObject([{ name: 'call', by: 'loop-1', job: first!.id }])
    expect((await queue.explain(second!.id)).reasons).toMatchObject([{ why: 'held', by: 'loop-1' }])
    const [mail, ...none] = await queue.claim({ max: 5 })
    expect([mail!.id, none]).toEqual([other!.id, []])
    await expect(mail!.hold('1h', { of: 'all' as 'group' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(mail!.hold(0)).rejects.toMatchObject({ code: 'INVALID_DURATION' })
    await mail!.hold('1h', { of: 'group' })
    await expect(mail!.complete()).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
    await queue.unhold({ name: 'call' })
    expect(await queue.claim({ max: 5 })).toMatchObject([{ id: first!.id, attempt: 1 }, { id: second!.id }])
  })

  it('one hold too many leaves the job with its holder', async () => {
    const queue = await newQueue()
    await queue.add('call')
    await Promise.all(Array.from({ length: MAX_HOLDS }, (_, n) => queue.hold('1h', { group: `g${n}` })))
    const [claimed] = await queue.claim()
    await expect(claimed!.hold('1m')).rejects.toMatchObject({ code: 'TOO_MANY_HOLDS' })
    await claimed!.snooze('1m')
  })

  it('progress and log lines are durable when their calls resolve', async () => {
    const queue = await newQueue()
    const added = await queue.add('job')
    const [claimed] = await queue.claim()
    await claimed!.progress({ percent: 40 })
    await claimed!.log('so far')
    expect((await added.refresh()).progress).toEqual({ percent: 40 })
    expect(await added.logs()).toMatchObject([{ line: 'so far', attempt: 1 }])
  })

  it('the holder of a cancelled job learns the reason from its heartbeat, and from every call', async () => {
    const queue = await newQueue()
    const added = await queue.add('job')
    const [claimed] = await queue.claim()
    expect(await claimed!.heartbeat()).toEqual({ held: true })
    await added.cancel({ reason: 'not needed' })
    expect(await claimed!.heartbeat()).toEqual({ held: false, reason: 'cancelled', cancelReason: 'not needed' })
    const lost = { code: 'LEASE_LOST', details: { id: added.id, reason: 'cancelled', cancelReason: 'not needed' } }
    for (const call of [
      () => claimed!.complete(1),
      () => claimed!.fail(new Error('x')),
      () => claimed!.progress(1),
      () => claimed!.log('x'),
      () => claimed!.snooze(1),
      () => claimed!.release(),
      () => claimed!.hold('1h'),
    ]) {
      await expect(call()).rejects.toMatchObject(lost)
    }
    expect(await added.refresh()).toMatchObject({ state: 'cancelled', returned: undefined })
    expect(await queue.holds()).toEqual([])
  })

  it.each(['complete', 'fail', 'progress'] as const)(
    'the first to know of a lost job may be %s, and nothing is written',
    async (call) => {
      const queue = await newQueue()
      const added = await queue.add('job')
      const [claimed] = await queue.claim()
      await added.remove()
      const made = call === 'fail' ? claimed!.fail(new Error('x')) : claimed![call]('x')
      await expect(made).rejects.toMatchObject({ code: 'LEASE_LOST', details: { reason: 'removed' } })
      expect(await claimed!.heartbeat()).toEqual({ held: false, reason: 'removed' })
    },
  )

  it('a job whose lease expired is claimed by another process, and its old holder is refused', async () => {
    const store = await make(kind)
    const [queue, other] = [0, 1].map(() => closing(new Queue('work', { store, logger: false })))
    const added = await queue!.add('job')
    const [stale] = await queue!.claim({ lease: 30 })
    const [fresh] = await other!.claim({ wait: '60s' })
    expect(fresh).toMatchObject({ id: added.id, attempt: 2 })
    expect(fresh!.fence).toBeGreaterThan(stale!.fence)
    expect(await stale!.heartbeat()).toEqual({ held: false, reason: 'lease-lost' })
    await expect(stale!.complete('stale')).rejects.toMatchObject({ code: 'LEASE_LOST' })
    await fresh!.complete('fresh')
    expect(await added.result()).toBe('fresh')
    expect((await added.refresh()).stalls).toBe(1)
  })

  it('a heartbeat can lengthen the lease', async () => {
    const queue = await newQueue()
    const added = await queue.add('job')
    const [claimed] = await queue.claim({ lease: '30s' })
    const before = claimed!.job.leaseUntil!
    expect(await claimed!.heartbeat({ lease: '1h' })).toEqual({ held: true })
    expect((await added.refresh()).leaseUntil! - before).toBeGreaterThan(1_800_000)
  })

  it('complete adds jobs and continues the chain in its own commit, and releases dependents', async () => {
    const queue = await newQueue()
    const first = await queue.add('draft')
    const after = await queue.add('report', undefined, { after: first })
    const [draft] = await queue.claim()
    await draft!.complete(async (plan) => {
      const { add, continueWith } = plan as { add: Function; continueWith: Function }
      await add('child', 7)
      await continueWith('publish', 'text')
      return 'drafted'
    })
    expect(await first.refresh()).toMatchObject({ state: 'completed', returned: 'drafted' })
    expect((await after.refresh()).state).toBe('waiting-children')
    const rest = await queue.claim({ max: 5 })
    expect(rest.map(({ name, data }) => [name, data])).toEqual([
      ['child', 7],
      ['publish', 'text'],
    ])
    expect(rest[0]!.job.parentId).toBe(first.id)
    await rest[1]!.complete('published')
    expect(await queue.chain(first.id).result()).toBe('published')
    expect((await after.refresh()).state).toBe('waiting')
  })

  it('a job that is not to be kept is gone when complete resolves', async () => {
    const queue = await newQueue()
    const { id } = await queue.add('job', undefined, { removeOnComplete: true })
    const [claimed] = await queue.claim()
    await claimed!.complete()
    expect(await queue.get(id)).toBeUndefined()
  })

  it('pauses, limits and groups hold claims back', async () => {
    const queue = await newQueue()
    await queue.limit({ group: { concurrency: 1 }, names: { slow: { concurrency: 2 } } })
    for (const group of ['a', 'a', 'b']) await queue.add('job', group, { group })
    for (let each = 0; each < 3; each++) await queue.add('slow')
    await queue.pause()
    expect(await queue.claim({ max: 10 })).toEqual([])
    await queue.resume()
    const claimed = await queue.claim({ max: 10 })
    expect(claimed.map(({ name, data }) => (data === undefined ? name : (data as string))).toSorted()).toEqual([
      'a',
      'b',
      'slow',
      'slow',
    ])
    await claimed.find(({ data }) => data === 'a')!.complete()
    expect((await queue.claim({ max: 10 })).map(({ data }) => data)).toEqual(['a'])
  })

  it('a cancelled job stops counting against limits when its holder gives it up', async () => {
    const queue = await newQueue()
    await queue.limit({ concurrency: 1 })
    const [first] = await queue.addBulk([{ name: 'job' }, { name: 'job' }])
    const [claimed] = await queue.claim()
    await first!.cancel()
    expect(await queue.claim()).toEqual([])
    const claiming = queue.claim({ wait: '60s' })
    await expect(claimed!.complete()).rejects.toMatchObject({ code: 'LEASE_LOST' })
    expect(await claiming).toHaveLength(1)
  })

  it('only versions that are declared are claimed, upgraded to the newest', async () => {
    const store = await make(kind)
    const open = (jobs: object) =>
      closing(new Queue('work', { store, logger: false, jobs: jobs as never })) as unknown as Queue
    for (const version of [1, 2, 3]) await open(defineJobs({ job: job<number>({ version }) })).add('job', version)
    const known = open(defineJobs({ job: job<number>({ version: 2, upgrade: { 1: (data) => Number(data) + 100 } }) }))
    expect((await known.claim({ max: 10 })).map(({ data }) => data)).toEqual([101, 2])
  })

  it('a job whose data its schema refuses fails for good and is not returned', async () => {
    const store = await make(kind)
    const loose = closing(new Queue('work', { store, logger: false }))
    const strict = closing(
      new Queue('work', {
        store,
        logger: false,
        jobs: defineJobs({ job: job({ input: z.object({ to: z.string() }) }) }),
      }),
    )
    const bad = await loose.add('job', { to: 7 })
    const good = await loose.add('job', { to: 'ann' })
    expect((await strict.claim()).map(({ id }) => id)).toEqual([good.id])
    expect(await bad.refresh()).toMatchObject({ state: 'failed', attempt: 1, error: { code: 'INVALID_PAYLOAD' } })
  })

  it('a result that its schema refuses is not written, and the job stays with its holder', async () => {
    const store = await make(kind)
    const jobs = defineJobs({ job: job({ output: z.object({ ok: z.boolean() }) }) })
    const queue = closing(new Queue('work', { store, logger: false, jobs }))
    const added = await queue.add('job')
    const [claimed] = await queue.claim()
    await expect(claimed!.complete({ ok: 'yes' } as never)).rejects.toMatchObject({ code: 'INVALID_RESULT' })
    expect((await added.refresh()).state).toBe('active')
    await claimed!.complete({ ok: true })
    expect(await added.result()).toEqual({ ok: true })
  })

  it('a second settlement by the same holder is refused', async () => {
    const queue = await newQueue()
    await queue.add('job')
    const [claimed] = await queue.claim()
    const first = claimed!.complete()
    await expect(claimed!.fail(new Error('x'))).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
    await first
    for (const call of [() => claimed!.release(), () => claimed!.heartbeat(), () => claimed!.progress(1)]) {
      await expect(call()).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
    }
  })

  it('await using releases a job that its block did not settle', async () => {
    const queue = await newQueue()
    await queue.addBulk([{ name: 'settled' }, { name: 'left' }])
    const jobs = await queue.claim({ max: 2 })
    for (const each of jobs) {
      await using claimed = each
      if (claimed.name === 'settled') await claimed.complete()
    }
    expect(await queue.counts()).toMatchObject({ completed: 1, waiting: 1, active: 0 })
  })

  it('a claimer is in the registry while its queue object is open', async () => {
    const queue = await newQueue()
    const { id } = await queue.add('job')
    expect((await queue.explain(id)).reasons[0]!.why).toBe('no-worker')
    expect(await queue.claim({ names: ['other'], worker: 'loop-1' })).toEqual([])
    const entries = async () => (await queue.store.details({ cellsUnder: WORKERS })).cells.map(({ key }) => key)
    expect(await entries()).toEqual([`${WORKERS}loop-1`])
    const again = closing(new Queue('work', { store: queue.store, logger: false }))
    const [claimed] = await again.claim()
    await claimed!.release()
    expect((await again.explain(id)).reasons).toEqual([{ why: 'next' }])
    await queue.close()
    expect(await entries()).toEqual([`${WORKERS}${claimed!.worker}`])
    await again.close()
    expect(await entries()).toEqual([])
  })

  it('a worker and a claimer by hand share a queue without running a job twice', async () => {
    const queue = await newQueue()
    const jobs = await queue.addBulk(Array.from({ length: 40 }, (_, at) => ({ name: 'job', data: at })))
    const ran: unknown[] = []
    const worker = closing(new Worker(queue, ({ data }) => void ran.push(data), { logger: false }))
    for (;;) {
      const claimed = await queue.claim({ max: 3 })
      if (claimed.length === 0) break
      for (const each of claimed) {
        ran.push(each.data)
        await each.complete()
      }
    }
    await Promise.all(jobs.map((each) => each.result()))
    await worker.close()
    expect(ran.toSorted((a, b) => Number(a) - Number(b))).toEqual(jobs.map((_, at) => at))
  })

  it('fail from outside ends a job in any unfinished state, once, and aborts its handler', async () => {
    const queue = await newQueue()
    const [waiting, delayed] = await queue.addBulk([{ name: 'a' }, { name: 'b', options: { delay: '1h' } }])
    const parent = await queue.add('c', undefined, { after: [waiting!] })
    await queue.fail(waiting!.id, new Error('broken upstream'))
    await delayed!.fail('no such order')
    expect(await waiting!.refresh()).toMatchObject({ state: 'failed', error: { message: 'broken upstream' } })
    expect(delayed).toMatchObject({ state: 'failed', error: { message: 'no such order' } })
    await expect(queue.fail(waiting!.id, 'again')).rejects.toMatchObject({ code: 'INVALID_STATE' })
    await expect(queue.fail('none', 'x')).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    const [aborted, started] = [gate<unknown>(), gate()]
    closing(
      new Worker(
        queue,
        {
          run: (_job, ctx) => {
            ctx.signal.addEventListener('abort', () => aborted.open(ctx.signal.reason?.reason))
            started.open()
            return aborted.promise
          },
        },
        { logger: false },
      ),
    )
    const running = await queue.add('run')
    await started.promise
    const failed = event(queue, 'failed', ({ id }) => id === parent.id)
    await running.fail(new Error('stop it'))
    expect(await aborted.promise).toBe('completed-elsewhere')
    expect(await running.refresh()).toMatchObject({ state: 'failed', error: { message: 'stop it' } })
    if ((await parent.refresh()).state !== 'failed') await failed // its dependency failed, and upkeep records it
  })
})

describe.each(['SQLite', 'PostgreSQL'] as const)('transactions on %s', (kind) => {
  const make = stores()

  it('complete inside a transaction is committed with it, and a rollback leaves the job with its holder', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const added = await queue.add('job')
    const [claimed] = await queue.claim()
    const undo = new Error('undo')
    const undone = queue.transaction(async () => {
      await claimed!.complete('first')
      throw undo
    })
    await expect(undone).rejects.toBe(undo)
    expect((await added.refresh()).state).toBe('active')
    expect(await claimed!.heartbeat()).toEqual({ held: true })
    await queue.transaction(async () => {
      await queue.add('beside')
      await claimed!.complete('second')
    })
    expect(await added.result()).toBe('second')
    expect(await queue.counts()).toMatchObject({ completed: 1, waiting: 1 })
    await expect(claimed!.release()).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
  })

  it('a claim inside a transaction is refused', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const refused = await queue.transaction(() => queue.claim().catch((error: unknown) => error as never))
    expect(isMillraceError(refused, 'IN_TRANSACTION')).toBe(true)
  })
})
