// Phases on every store, and how they are resumed.
import { describe, expect, test } from 'vitest'
import { FlowProducer, JobAbort, Queue, Worker, defineJobs, job, middleware, phases } from 'millrace'
import type { EventOf, PhasesHandlerOf, QueueEvent, Store } from 'millrace'
import { complete } from '../../../src/job/lifecycle.js'
import type { Group } from '../../../src/store/store.js'
import { closing, event, gate, newQueue, newWorker } from '../../setup.js'
import { kinds, stores } from '../../stores.js'
import { countingCommits } from './counting-commits.js'

const make = stores()

const jobs = defineJobs({
  video: job<{ url: string }, string, string, readonly string[], Results>({
    phases: ['download', 'process', 'upload'],
    attempts: 3,
    backoff: 1,
  }),
})

interface Results {
  download: { path: string }
  process: { frames: number }
  upload: string
}

function stage(store: Store) {
  const queue = closing(new Queue('work', { store, jobs, logger: false }))
  const seen: QueueEvent[] = []
  for (const type of ['phase', 'progress', 'completed', 'failed', 'retrying', 'cancelled', 'error'] as const) {
    queue.on(type, (each) => void seen.push(each))
  }
  return { queue, seen }
}

function running(): { readonly runs: string[]; readonly run: (what: string) => string } {
  const runs: string[] = []
  return { runs, run: (what) => (runs.push(what), what) }
}

function words(events: readonly QueueEvent[]): string[] {
  return events.map((each) => (each.type === 'phase' ? `${each.phase} ${each.status}` : each.type))
}

describe.each(kinds)('on %s', (kind) => {
  test('a phase that sends its job back is over, and the next one begins after that time', async () => {
    const { queue } = stage(await make(kind))
    const { runs, run } = running()
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: async (own) => {
              run('download')
              await own.update({ delay: 20 })
              return { path: '' }
            },
            process: () => (run('process'), { frames: 1 }),
            upload: () => run('upload'),
          }),
        },
        { logger: false },
      ),
    )
    const delayed = event(queue, 'delayed')
    const added = await queue.add('video', { url: 'a' })
    await delayed
    expect(runs).toEqual(['download'])
    expect(await added.result()).toBe('upload')
    expect(runs).toEqual(['download', 'process', 'upload'])
  })

  test.each(['by hand', 'by middleware', 'by a plain handler'])(
    'a last phase that was left, of a job that is then completed %s, has not completed',
    async (how) => {
      const store = await make(kind)
      const { queue } = stage(store)
      const handler: PhasesHandlerOf<typeof jobs, 'video'> = phases({
        download: () => ({ path: 'kept' }),
        process: () => ({ frames: 1 }),
        upload: (_job, ctx): string => ctx.snooze('1h'),
      })
      let left = false
      const cached = middleware((_job, _ctx, next) => (how === 'by middleware' && left ? how : next()))
      const delayed = event(queue, 'delayed')
      const first = closing(new Worker(queue, { video: handler }, { middleware: [cached], logger: false }))
      const added = await queue.add('video', { url: 'a' })
      await delayed
      left = true
      if (how === 'by a plain handler') {
        await first.close()
        closing(new Worker('work', { video: () => how }, { store, logger: false }))
      }
      if (how === 'by hand') await queue.chain(added.id).complete(({ complete }) => complete(() => how))
      else await added.promote()
      expect(await added.result()).toBe(how)
      await added.refresh()
      expect(added.phases).toMatchObject({
        download: { status: 'completed', progress: 100, result: { path: 'kept' } },
        process: { status: 'completed', progress: 100, result: { frames: 1 } },
        upload: { status: 'cancelled', progress: 0 },
      })
      expect(added.progress).toBe(67)
    },
  )

  test('a last phase that begins while its job is being completed by hand has not completed', async () => {
    const store = await make(kind)
    const { queue } = stage(store)
    const [last, over] = [gate(), gate()]
    const handler: PhasesHandlerOf<typeof jobs, 'video'> = phases({
      download: () => ({ path: 'kept' }),
      process: async () => (await last.promise, { frames: 1 }),
      upload: async () => (await over.promise, 'too late'),
    })
    const processing = event(queue, 'phase', (each) => each.phase === 'process')
    closing(new Worker(queue, { video: handler }, { logger: false }))
    const added = await queue.add('video', { url: 'a' })
    await processing
    const [seen] = await store.get([added.id])
    const uploading = event(queue, 'phase', (each) => each.phase === 'upload')
    last.open()
    await uploading
    // What a hand does that has read the job before the phase began: notes do not change the fence.
    const completion = complete(seen!, { kind: 'returned', result: '"by hand"', also: [] }) as Group
    const batch = { writer: 'hand', seq: 1, groups: [completion], renewals: [], asks: [] }
    expect((await store.commit(batch)).groups).toMatchObject([{ ok: true }])
    over.open()
    expect(await added.result()).toBe('by hand')
    await added.refresh()
    expect(added.phases).toMatchObject({
      download: { status: 'completed', progress: 100, result: { path: 'kept' } },
      process: { status: 'completed', progress: 100, result: { frames: 1 } },
      upload: { status: 'cancelled', progress: 0 },
    })
  })

  test('what a phase reported before it threw is not lost', async () => {
    const { queue } = stage(await make(kind))
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: (_job, ctx) => {
              void ctx.progress(70)
              throw new Error('no')
            },
            process: () => ({ frames: 1 }),
            upload: () => '',
          }),
        },
        { logger: false },
      ),
    )
    const failed = event(queue, 'failed')
    const added = await queue.add('video', { url: 'a' }, { attempts: 1 })
    await failed
    expect((await added.refresh()).phases['download']).toMatchObject({ status: 'failed', progress: 70 })
  })

  test('phases run in order, each result is passed on, and the last one is the result of the job', async () => {
    const { queue, seen } = stage(await make(kind))
    const added = await queue.add('video', { url: 'a' })
    expect(added.phases).toMatchObject({
      download: { status: 'pending', progress: 0 },
      process: { status: 'pending', progress: 0 },
      upload: { status: 'pending', progress: 0 },
    })
    expect(Object.keys(added.phases)).toEqual(['download', 'process', 'upload'])
    expect(added.progress).toBe(0)
    const done = event(queue, 'completed')
    closing(
      new Worker(
        queue,
        {
          video: phases({
            // The order is that of the declaration.
            upload: (_job, ctx) => {
              expect(ctx.phaseResults()).toEqual({ download: { path: '/tmp/a' }, process: { frames: 4 } })
              return `${ctx.phaseResult('process')?.frames}`
            },
            download: (each) => ({ path: `/tmp/${each.data.url}` }),
            process: async (_job, ctx) => {
              expect(ctx.phaseResult('upload')).toBeUndefined()
              return { frames: ctx.phaseResult('download')!.path.length - 2 }
            },
          }),
        },
        { logger: false },
      ),
    )
    expect(await added.result()).toBe('4')
    await done
    await added.refresh()
    expect(added.phases).toMatchObject({
      download: { status: 'completed', progress: 100, result: { path: '/tmp/a' } },
      process: { status: 'completed', progress: 100, result: { frames: 4 } },
      upload: { status: 'completed', progress: 100, result: '4' },
    })
    expect(added.progress).toBe(100)
    expect(words(seen)).toEqual([
      'download active',
      'download completed',
      'process active',
      'process completed',
      'upload active',
      'upload completed',
      'completed',
    ])
    expect(seen[1]).toMatchObject({ type: 'phase', phase: 'download', status: 'completed', result: { path: '/tmp/a' } })
    expect(seen[5]).toMatchObject({ result: '4' })
  })

  test('overall progress is computed from phase index and phase progress, and is durable before it is announced', async () => {
    const store = await make(kind)
    const { queue, seen } = stage(store)
    const looked: unknown[] = []
    const look = async (): Promise<void> => {
      const { progress, phases: now } = (await queue.get(added.id))!
      looked.push([progress, Object.values(now).map((each) => each.progress)])
    }
    const added = await queue.add('video', { url: 'a' })
    const done = event(queue, 'completed')
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: async (_job, ctx) => {
              await ctx.progress(50)
              await look()
              return { path: '' }
            },
            process: async (_job, { progress }) => {
              await progress(25)
              await look()
              return { frames: 1 }
            },
            upload: async (_job, ctx) => {
              await ctx.progress(80)
              await look()
              return ''
            },
          }),
        },
        { logger: false },
      ),
    )
    await done
    expect(looked).toEqual([
      [17, [50, 0, 0]],
      [42, [100, 25, 0]],
      [93, [100, 100, 80]],
    ])
    const reported = seen.filter((each): each is EventOf<'progress'> => each.type === 'progress')
    expect(reported.map(({ progress, phase, phaseProgress }) => [phase, phaseProgress, progress])).toEqual([
      ['download', 50, 17],
      ['process', 25, 42],
      ['upload', 80, 93],
    ])
  })

  test('phase results are preserved on partial retry: it resumes at the phase that failed', async () => {
    const { queue, seen } = stage(await make(kind))
    const { runs, run } = running()
    const added = await queue.add('video', { url: 'a' })
    const [retrying, completed] = [event(queue, 'retrying'), event(queue, 'completed')]
    const between = gate()
    let fails = true
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: () => ({ path: run('download') }),
            process: async (each, ctx) => {
              runs.push(`process ${each.attempt} ${ctx.phaseResult('download')?.path}`)
              if (fails) await ctx.progress(50)
              if (fails) throw new Error('not yet')
              return { frames: 1 }
            },
            upload: () => run('upload'),
          }),
        },
        { logger: false, retryable: () => (between.open(), 'retry') },
      ),
    )
    await between.promise
    fails = false
    expect(await retrying).toMatchObject({ attempt: 1, error: { message: 'not yet' } })
    expect(await added.result()).toBe('upload')
    await completed // a result may arrive before the events
    expect(runs).toEqual(['download', 'process 1 download', 'process 2 download', 'upload'])
    expect(words(seen)).toEqual([
      'download active',
      'download completed',
      'process active',
      'progress',
      'process failed',
      'retrying',
      'process active',
      'process completed',
      'upload active',
      'upload completed',
      'completed',
    ])
  })

  test('a retry by hand resumes where it failed, and so does one after a cancellation', async () => {
    const { queue } = stage(await make(kind))
    const { runs, run } = running()
    const added = await queue.add('video', { url: 'a' }, { attempts: 1 })
    let mood: 'fail' | 'hang' | 'go' = 'fail'
    const hanging = gate()
    const failed = event(queue, 'failed')
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: () => ({ path: run('download') }),
            process: async (_job, ctx) => {
              runs.push('process')
              if (mood === 'fail') throw new Error('no')
              if (mood === 'hang') {
                hanging.open()
                await new Promise((_, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason!)))
              }
              return { frames: 1 }
            },
            upload: (_job, ctx) => `${ctx.phaseResult('download')?.path}!`,
          }),
        },
        { logger: false },
      ),
    )
    await failed
    await added.refresh()
    expect(added.phases).toMatchObject({
      download: { status: 'completed', progress: 100, result: { path: 'download' } },
      process: { status: 'failed', progress: 0, error: { name: 'Error', message: 'no' } },
      upload: { status: 'cancelled', progress: 0 },
    })
    expect(added.progress).toBe(33)
    mood = 'hang'
    const begun = event(queue, 'phase', (each) => each.status === 'active')
    await added.retry()
    await Promise.all([hanging.promise, begun])
    expect((await added.refresh()).phases['process']).toMatchObject({ status: 'active', progress: 0 })
    const received = event(queue, 'cancelled')
    await added.cancel()
    expect(Object.values(added.phases).map(({ status }) => status)).toEqual(['completed', 'cancelled', 'cancelled'])
    await received
    mood = 'go'
    await added.retry()
    expect(await added.result()).toBe('download!')
    expect(runs).toEqual(['download', 'process', 'process', 'process'])
  })

  test('a phase is tried as often as its attempts allow, with its own backoff, within the attempts of the job', async () => {
    const { queue } = stage(await make(kind))
    const runs: string[] = []
    const added = await queue.add('video', { url: 'a' }, { attempts: 10 })
    const failed = event(queue, 'failed')
    const handler = closing(
      new Worker(
        queue,
        {
          video: phases({
            download: {
              run: ({ attempt }) => {
                runs.push(`download ${attempt}`)
                if (attempt < 3) throw new Error('again')
                return { path: '' }
              },
              attempts: 3,
              backoff: { type: 'custom', name: 'own' },
            },
            process: {
              run: ({ attempt }) => {
                runs.push(`process ${attempt}`)
                throw new Error('never')
              },
              attempts: 2,
              backoff: { type: 'custom', name: 'own' },
            },
            upload: () => 'x',
          }),
        },
        {
          logger: false,
          backoff: { own: (attempt, error) => (runs.push(`${(error as Error).message} ${attempt}`), 1) },
        },
      ),
    )
    expect(await failed).toMatchObject({ attempt: 4, error: { message: 'never' } })
    expect(runs).toEqual([
      'download 1',
      'again 1',
      'download 2',
      'again 2',
      'download 3',
      'process 3',
      'never 1',
      'process 4',
    ])
    await handler.close()
    await added.retry()
    const again = closing(
      new Worker(queue, {
        video: phases({
          download: () => ({ path: '' }),
          process: { run: () => ({ frames: 2 }), attempts: 1 },
          upload: () => 'x',
        }),
      }),
    )
    expect(await added.result()).toBe('x') // counted anew
    await again.close()
    const few = await queue.add('video', { url: 'a' }, { attempts: 2 })
    const over = event(queue, 'failed')
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: {
              run: () => {
                throw new Error('x')
              },
              attempts: 5,
              backoff: 1,
            },
            process: () => ({ frames: 1 }),
            upload: () => 'x',
          }),
        },
        { logger: false },
      ),
    )
    expect(await over).toMatchObject({ id: few.id, attempt: 2 })
  })

  test('a phase that runs past its timeout is aborted, and fails', async () => {
    const { queue } = stage(await make(kind))
    const reasons: (string | undefined)[] = []
    const added = await queue.add('video', { url: 'a' }, { attempts: 1 })
    const failed = event(queue, 'failed')
    closing(
      new Worker(
        queue,
        {
          video: phases({
            download: { run: () => ({ path: '' }), timeout: '1h' },
            process: {
              run: (_job, ctx) =>
                new Promise((resolve) => {
                  ctx.signal.addEventListener('abort', () => {
                    reasons.push(ctx.signal.reason instanceof JobAbort ? ctx.signal.reason.reason : '')
                    resolve({ frames: 1 }) // that it goes on does not help it
                  })
                }),
              timeout: 5,
            },
            upload: () => 'x',
          }),
        },
        { logger: false },
      ),
    )
    expect(await failed).toMatchObject({
      error: { code: 'JOB_TIMEOUT', message: expect.stringContaining("'process'") },
    })
    expect(reasons).toEqual(['timeout'])
    await added.refresh()
    expect(Object.values(added.phases).map(({ status }) => status)).toEqual(['completed', 'failed', 'cancelled'])
  })

  test('a result of a phase that is not JSON or too large fails the job at once, with a code', async () => {
    const { queue } = stage(await make(kind))
    const give: unknown[] = [() => {}, 'x'.repeat(1_100_000)]
    const codes: (string | undefined)[] = []
    closing(
      new Worker(
        queue,
        { video: phases({ download: () => give.shift() as never, process: () => ({ frames: 1 }), upload: () => '' }) },
        { logger: false },
      ),
    )
    for (let each = 0; each < 2; each++) {
      const failed = event(queue, 'failed')
      await queue.add('video', { url: '' })
      const { error, attempt } = await failed
      codes.push(`${error.code} ${attempt}`)
    }
    expect(codes).toEqual(['INVALID_DATA 1', 'DATA_TOO_LARGE 1'])
  })
})

describe.each(['SQLite', 'PostgreSQL'] as const)('on %s, with transactions', (kind) => {
  test('the last phase settles in the transaction of ctx.complete, and fails with it', async () => {
    const { queue, seen } = stage(await make(kind))
    const added = await queue.add('video', { url: 'a' })
    const done = event(queue, 'completed', ({ id }) => id === added.id)
    let early: unknown
    const worker = closing(
      new Worker(
        queue,
        {
          video: phases({
            download: (_job, ctx) => {
              try {
                void ctx.complete(() => {})
              } catch (error) {
                early = error
              }
              return { path: '' }
            },
            process: () => ({ frames: 1 }),
            upload: async (each, ctx) => {
              await ctx.progress(10)
              return ctx.complete(async ({ add }) => {
                await add('video', { url: `child ${each.attempt}` }, { delay: '1h' })
                if (each.attempt === 1) throw new Error('rolled back')
                return 'from complete'
              })
            },
          }),
        },
        { logger: false },
      ),
    )
    const own: string[] = []
    worker.on('phase', ({ phase, status }) => void own.push(`${phase} ${status}`))
    await done
    expect(early).toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
    expect((await added.refresh()).phases['upload']).toMatchObject({
      status: 'completed',
      progress: 100,
      result: 'from complete',
    })
    expect((await queue.list({ parent: added.id })).jobs.map(({ data }) => data)).toEqual([{ url: 'child 2' }])
    const reported = words(seen).slice(4)
    expect(reported).toEqual([
      'upload active',
      'progress',
      'upload failed',
      'retrying',
      'upload active',
      'progress',
      'upload completed',
      'completed',
    ])
    expect(own.filter((word) => word.startsWith('upload'))).toEqual([
      'upload active',
      'upload failed',
      'upload active',
      'upload completed',
    ])
  })
})

describe('on memory', () => {
  test('10,000 calls of progress that are not awaited leave in a few commits, and the last one stands', async () => {
    const { store, commits } = countingCommits(await make('memory'))
    const { queue, seen } = stage(store)
    const added = await queue.add('video', { url: 'a' })
    const fired = gate()
    const go = gate()
    const worker = new Worker(
      queue,
      {
        video: phases({
          download: async (_job, ctx) => {
            const before = commits()
            for (let each = 1; each <= 10_000; each++) void ctx.progress(each / 100)
            await event(queue, 'progress', ({ phaseProgress }) => phaseProgress === 100)
            expect(commits() - before).toBeLessThan(10)
            fired.open()
            await go.promise
            for (let each = 1; each <= 10_000; each++) void ctx.progress(each / 200)
            return { path: '' }
          },
          process: () => ({ frames: 1 }),
          upload: (_job, ctx) => {
            for (let each = 1; each <= 10_000; each++) void ctx.progress(each / 400)
            return ''
          },
        }),
      },
      { logger: false },
    )
    closing(worker)
    await fired.promise
    expect((await added.refresh()).phases['download']).toMatchObject({ progress: 100, status: 'active' })
    const done = event(queue, 'completed')
    go.open()
    await done
    const reported = seen.filter((each): each is EventOf<'progress'> => each.type === 'progress')
    expect(reported.at(-1)).toMatchObject({ phase: 'upload', phaseProgress: 25, progress: 75 })
    expect(commits()).toBeLessThan(40)
  })

  test('a job of three phases costs two commits more than a plain one', async () => {
    const cost = async (handler: 'plain' | 'phases'): Promise<number> => {
      const { store, commits } = countingCommits(await make('memory'))
      const queue = newQueue({ store })
      const worker = newWorker(
        queue,
        { work: handler === 'plain' ? () => 1 : phases({ a: () => 1, b: () => 2, c: () => 3 }) },
        { autorun: false },
      )
      const added = await queue.add('work')
      void worker.run()
      await added.result()
      return commits()
    }
    expect((await cost('phases')) - (await cost('plain'))).toBe(2)
  })

  test('phases that were not declared are those of the handler, once it has begun', async () => {
    const queue = newQueue({ store: await make('memory') })
    const added = await queue.add('work')
    expect(added.phases).toEqual({})
    closing(
      new Worker(queue, phases({ one: () => 1, two: (_job, ctx) => [ctx.phaseResult('one'), ctx.phaseResults()] })),
    )
    expect(await added.result()).toEqual([1, { one: 1 }])
    expect(Object.keys((await added.refresh()).phases)).toEqual(['one', 'two'])
  })

  test('every way to add a job stamps its phases on it', async () => {
    const store = await make('memory')
    const { queue } = stage(store)
    const names = ['download', 'process', 'upload']
    const bulk = await queue.addBulk([
      { name: 'video', data: { url: '1' } },
      { name: 'video', data: { url: '2' }, options: { delay: '1h' } },
    ])
    for (const each of bulk) expect(Object.keys(each.phases)).toEqual(names)
    const flow = await new FlowProducer({ store, jobs }).add({ name: 'video', queueName: 'work', data: { url: '3' } })
    expect(Object.keys(flow.job.phases)).toEqual(names)
    const ran = event(queue, 'completed', ({ id }) => id.includes('often'))
    await queue.schedule('often', { every: 20, name: 'video', data: { url: '4' } })
    const quick: PhasesHandlerOf<typeof jobs, 'video'> = phases({
      download: () => ({ path: '' }),
      process: () => ({ frames: 1 }),
      upload: () => '',
    })
    closing(new Worker(queue, { video: quick }, { logger: false }))
    expect(Object.keys((await queue.get((await ran).id))!.phases)).toEqual(names)
  })

  test('ctx.waitFor and ctx.snooze leave a phase, and come back to it', async () => {
    const queue = newQueue({ store: await make('memory') })
    const runs: string[] = []
    const added = await queue.add('work')
    newWorker(queue, {
      child: () => 'from the child',
      work: phases({
        one: () => void runs.push('one'),
        two: async (each, ctx) => {
          const [child] = await ctx.dependencies()
          runs.push(`two ${each.attempt} ${child?.status}`)
          if (child === undefined) return ctx.waitFor(await ctx.add('child'))
          if (runs.length < 4) return ctx.snooze(1)
          return child.status === 'completed' ? child.result : undefined
        },
        three: (_job, ctx) => ctx.phaseResult('two'),
      }),
    })
    expect(await added.result()).toBe('from the child')
    expect(runs).toEqual(['one', 'two 1 undefined', 'two 1 completed', 'two 1 completed'])
  })

  test('a shutdown that aborts a phase hands the job back, and what had completed stays', async () => {
    const store = await make('memory')
    const { queue, seen } = stage(store)
    const runs: string[] = []
    const running = gate()
    const video = (last: string): PhasesHandlerOf<typeof jobs, 'video'> =>
      phases({
        download: async (_job, ctx) => {
          runs.push('download')
          running.open()
          if (last === '') await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
          return { path: 'kept' } // its result is kept, though it was aborted
        },
        process: ({ attempt }) => void runs.push(`process ${attempt}`) as never,
        upload: (_job, ctx) => `${ctx.phaseResult('download')?.path} ${last}`,
      })
    const first = new Worker(queue, { video: video('') }, { logger: false })
    const added = await queue.add('video', { url: 'a' })
    await running.promise
    await first.close({ timeout: 0, grace: 1000 }).catch(() => {})
    await added.refresh()
    expect([added.state, added.phases['download']?.status, added.progress]).toEqual(['waiting', 'completed', 33])
    closing(new Worker(queue, { video: video('later') }, { logger: false }))
    expect(await added.result()).toBe('kept later')
    expect(runs).toEqual(['download', 'process 1'])
    expect(words(seen)).not.toContain('retrying')
  })

  test('jobs are added by the last phase, in the commit that ends it', async () => {
    const queue = newQueue({ store: await make('memory') })
    newWorker(queue, {
      early: phases({ one: (_job, ctx) => ctx.add('child'), two: () => 2 }),
      late: phases({ one: () => 1, two: async (_job, ctx) => void (await ctx.add('child')) }),
      child: () => {},
    })
    const late = await queue.add('late')
    await late.result()
    expect((await queue.list({ parent: late.id })).jobs).toHaveLength(1)
    const early = await queue.add('early')
    await expect(early.result()).rejects.toMatchObject({ cause: { code: 'CALLED_OUT_OF_ORDER' } })
    expect((await early.refresh()).attempt).toBe(1)
  })

  test('progress of a phase that has ended is reported without an await, also before its begin is durable', async () => {
    const queue = newQueue({ store: await make('memory') })
    const late = async (progress: (percent: number) => Promise<void>): Promise<void> => {
      for (let turns = 0; turns < 20; turns++) await Promise.resolve()
      void progress(50)
    }
    const handlers = { work: phases({ one: (_job, ctx) => void late(ctx.progress), two: () => 2 }) }
    const worker = closing(new Worker(queue, handlers, { logger: false }))
    const message = new Promise<QueueEvent>((resolve) => worker.on('error', resolve))
    expect(await (await queue.add('work')).result()).toBe(2)
    expect(await message).toMatchObject({
      error: { code: 'CALLBACK_FAILED', message: expect.stringContaining("'one'") },
    })
  })

  test('middleware is around all phases, and each of them has what it adds', async () => {
    const queue = newQueue({ store: await make('memory') })
    const seen: string[] = []
    const user = middleware<{ user: string }>((_job, _ctx, next) => next({ user: 'ada' }))
    const see = (ctx: object): string => (seen.push((ctx as { user: string }).user), 'seen')
    const handlers = { work: phases({ one: (_job, ctx) => see(ctx), two: (_job, ctx) => see(ctx) }) }
    closing(new Worker(queue, handlers, { middleware: [user], logger: false }))
    expect(await (await queue.add('work')).result()).toBe('seen')
    expect(seen).toEqual(['ada', 'ada'])
  })

  test.each(['process', 'upload'])(
    'a job that middleware completes though phase %s threw shows that it did not end',
    async (fails) => {
      const queue = newQueue({ jobs })
      const handler = phases({
        download: () => ({ path: '' }),
        process: () => {
          if (fails === 'process') throw new Error('no frames')
          return { frames: 1 }
        },
        upload: () => {
          throw new Error('no network')
        },
      })
      const forgiving = middleware((_job, _ctx, next) => next().catch(() => 'forgiven'))
      closing(new Worker(queue, { video: handler } as never, { middleware: [forgiving], logger: false }))
      const added = await queue.add('video', { url: '' })
      expect(await added.result()).toBe('forgiven')
      const { phases: shown } = (await queue.get(added.id))!
      const ended =
        fails === 'process' ? ['completed', 'cancelled', 'cancelled'] : ['completed', 'completed', 'cancelled']
      expect(Object.values(shown).map(({ status }) => status)).toEqual(ended)
    },
  )

  test('phases that cannot be run are refused when the worker is made', () => {
    const queue = newQueue({ jobs })
    const refused = (make: () => unknown, message: string): void =>
      expect(make).toThrow(expect.objectContaining({ message: expect.stringContaining(message) }))
    const one = (): { path: string } => ({ path: '' })
    refused(() => new Worker(queue, { video: (() => {}) as never }), 'phases({ download, process, upload })')
    refused(() => new Worker(queue, { video: phases({ download: one, process: one }) as never }), "no phase 'upload'")
    refused(
      () => new Worker(queue, { video: phases({ download: one, process: one, upload: one, uplaod: one }) as never }),
      "did you mean 'upload'?",
    )
    refused(() => new Worker(queue, (() => {}) as never), 'declared with phases')
    refused(() => phases({}), 'one at the least')
    refused(() => phases({ 1: one }), "'1' cannot be the name of a phase")
    refused(() => phases({ one: 5 } as never), "Phase 'one' must be a function")
    refused(() => phases({ one: { run: one, attempts: 0 } }), 'attempts must be a whole number')
    refused(() => phases({ one: { run: one, retries: 2 } } as never), "unknown option 'retries'")
    refused(() => job({ phases: ['a', 'a'] }), "two phases 'a'")
    refused(() => job({ phases: [''] }), 'must not be empty')
    refused(() => job({ phases: [] }), 'one at the least')
  })
})
