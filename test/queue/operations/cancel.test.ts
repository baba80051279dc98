// Cancellation: of pending and of running jobs, at every step of a phase run.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, defineJobs, job, phases } from 'millrace'
import type { Job, JobPhase, JobPhases, PhasesHandlerOf, QueueEvent, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { freshFolder } from '../../stores/sqlite/folder.js'
import { closing, event, gate } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()
const path = freshFolder()

const jobs = defineJobs({
  video: job<undefined, string, string, readonly string[], { a: number; b: number; c: string }>({
    phases: ['a', 'b', 'c'],
    backoff: 1,
  }),
  marker: job<undefined, void>(),
})

type Jobs = typeof jobs

/** Phases that end at once, and report progress. */
const video: PhasesHandlerOf<Jobs, 'video'> = phases({
  a: async (_job, ctx) => {
    void ctx.progress(50)
    return 1
  },
  b: async (_job, ctx) => {
    await ctx.progress(50)
    return 2
  },
  c: (_job, ctx) => `${ctx.phaseResult('a')}${ctx.phaseResult('b')}`,
})
const quick = { video }

const statuses = ({ phases: all }: Job): string[] => Object.values(all).map(({ status }) => status)

/** Checks what must hold of a job after a cancel, successful or not. */
async function sound(
  queue: Queue<Jobs>,
  events: readonly QueueEvent[],
  id: string,
): Promise<'completed' | 'cancelled'> {
  // Whatever was announced about it was announced before this.
  const after = event(queue, 'waiting', (each) => each.name === 'marker')
  const marker = await queue.add('marker')
  await after
  await marker.remove()
  const types = events.filter((each) => each.id === id).map(({ type }) => type)
  const standing = (await queue.get(id))!
  const ends = types.filter((type) => type === 'completed' || type === 'failed' || type === 'cancelled')
  expect(ends).toEqual([standing.state])
  const results: Readonly<Record<string, unknown>> = { a: 1, b: 2, c: '12' }
  let over = false
  for (const [name, phase] of Object.entries<JobPhase>(standing.phases)) {
    expect(phase.status).toBe(over || phase.status !== 'completed' ? 'cancelled' : 'completed')
    expect(phase.result).toEqual(phase.status === 'completed' ? results[name] : undefined)
    over ||= phase.status === 'cancelled'
  }
  expect(over).toBe(standing.state === 'cancelled')
  // A phase that was announced as completed is one.
  for (const each of events) {
    if (each.type !== 'phase' || each.id !== id || each.status !== 'completed') continue
    expect((standing.phases as JobPhases)[each.phase]?.status).toBe('completed')
  }
  return standing.state as 'completed' | 'cancelled'
}

/** A store whose n-th commit with changes is preceded, or followed, by something. */
function interrupted(store: Store, at: number, when: 'before' | 'after', what: () => Promise<unknown>): Store {
  let commits = 0
  const commit: Store['commit'] = async (batch, tx) => {
    if (batch.groups.length === 0 && batch.asks.length === 0) return store.commit(batch, tx)
    const now = ++commits === at
    if (now && when === 'before') await what()
    const receipt = await store.commit(batch, tx)
    if (now && when === 'after') await what()
    return receipt
  }
  return new Proxy(store, {
    get(target, key) {
      if (key === 'commit') return commit
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value
    },
  })
}

function watched(queue: Queue<Jobs>): QueueEvent[] {
  const events: QueueEvent[] = []
  for (const type of ['phase', 'progress', 'completed', 'failed', 'cancelled', 'active'] as const) {
    queue.on(type, (each) => void events.push(each))
  }
  return events
}

const pairs = {
  memory: (): readonly [Store, Store] => {
    const store = closing(memory())
    return [store, store]
  },
  SQLite: (): readonly [Store, Store] => [closing(sqlite(path('jobs.db'))), closing(sqlite(path('jobs.db')))],
}

describe.each(['memory', 'SQLite'] as const)('on %s', (kind) => {
  test.each(['before', 'after'] as const)(
    'exactly one cancelled event, whatever commit of a phase run a cancellation comes %s',
    async (when) => {
      const [here, there] = pairs[kind]()
      const other = closing(new Queue('work', { store: there, jobs, logger: false }))
      const events = watched(other)
      const ends = new Set<string>()
      for (let at = 1; at <= 14; at++) {
        const added = await other.add('video')
        let did: boolean | undefined
        const cancel = async (): Promise<void> => void (did = await other.cancel(added.id))
        const store = interrupted(here, at, when, cancel)
        const queue = new Queue('work', { store, jobs, logger: false })
        const ended = event(other, 'completed', ({ id }) => id === added.id)
        const cancelled = event(other, 'cancelled', ({ id }) => id === added.id)
        const worker = new Worker(queue, quick, { logger: false })
        await Promise.race([ended, cancelled])
        await worker.close()
        await queue.close()
        const end = await sound(other, events, added.id)
        if (did !== undefined) expect(did).toBe(end === 'cancelled')
        ends.add(end)
        await added.remove()
      }
      expect(ends).toEqual(new Set(['completed', 'cancelled']))
    },
  )

  test('exactly one cancelled event, whatever a phase run has just announced', async () => {
    const [here, there] = pairs[kind]()
    const queue = closing(new Queue('work', { store: here, jobs, logger: false }))
    const other = closing(new Queue('work', { store: there, jobs, logger: false }))
    const events = watched(other)
    const worker = closing(new Worker(queue, quick, { logger: false, autorun: false }))
    void worker.run()
    const ends = new Set<string>()
    for (let at = 1; at <= 11; at++) {
      let received = 0
      const both: Promise<boolean>[] = []
      const stops = (['active', 'phase', 'progress', 'completed'] as const).map((type) =>
        other.on(type, ({ id }) => {
          // From two sides at once: one of them at the most does it.
          if (++received === at) both.push(other.cancel(id), queue.cancel(id))
        }),
      )
      const ended = Promise.race([event(other, 'completed'), event(other, 'cancelled')])
      const added = await other.add('video')
      await ended
      const did = await Promise.all(both)
      for (const stop of stops) stop()
      const end = await sound(other, events, added.id)
      expect(did.filter(Boolean)).toHaveLength(end === 'cancelled' ? 1 : 0)
      ends.add(end)
      await added.remove()
    }
    expect(ends.has('cancelled')).toBe(true)
  })
})

describe.each(kinds)('on %s', (kind) => {
  test('if a job is cancelled before it starts, all unfinished phases are also cancelled', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), jobs, logger: false }))
    const [one, two, three] = await Promise.all([
      queue.add('video'),
      queue.add('video', undefined, { delay: '1h' }),
      queue.add('video', undefined, { delay: '1h' }),
    ])
    expect(await one.cancel()).toBe(true)
    expect(statuses(one)).toEqual(['cancelled', 'cancelled', 'cancelled'])
    expect(await queue.cancel({ state: 'delayed' })).toBe(2)
    for (const each of [two, three]) {
      expect((await each.refresh()).state).toBe('cancelled')
      expect(statuses(each)).toEqual(['cancelled', 'cancelled', 'cancelled'])
    }
  })

  test('cancellation is cooperative: the signal of a running phase aborts, and its result is not written', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, jobs, logger: false }))
    const cancels: string[] = []
    queue.on('cancelled', ({ id }) => void cancels.push(id))
    const running = gate()
    const stopped = gate<string | undefined>()
    const handler: PhasesHandlerOf<Jobs, 'video'> = phases({
      a: () => 1,
      b: async (_job, ctx) => {
        running.open()
        await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
        await ctx.progress(99).catch(() => {})
        stopped.open(ctx.signal.reason?.reason)
        return 2
      },
      c: () => 'never',
    })
    const worker = closing(new Worker(queue, { video: handler }, { logger: false }))
    const added = await queue.add('video')
    await running.promise
    const other = closing(new Queue('work', { store, jobs, logger: false }))
    expect(await other.cancel({ name: 'video' })).toBe(1)
    expect(await stopped.promise).toBe('cancelled')
    await worker.close()
    await added.refresh()
    expect(added.state).toBe('cancelled')
    expect(added.phases).toMatchObject({
      a: { status: 'completed', progress: 100, result: 1 },
      b: { status: 'cancelled', progress: 0 },
      c: { status: 'cancelled', progress: 0 },
    })
    expect(cancels).toEqual([added.id])
  })

  test('cascade cancels children with their phases', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), jobs, logger: false }))
    const waiting = event(queue, 'waiting-children')
    const parents: PhasesHandlerOf<Jobs, 'video'> = phases({
      a: async (_job, ctx) => ctx.waitFor([await ctx.add('video', undefined, { delay: '1h' })]),
      b: () => 2,
      c: () => '',
    })
    const worker = closing(new Worker(queue, { video: parents }, { logger: false }))
    const parent = await queue.add('video')
    await waiting
    await worker.close()
    expect(statuses(await parent.refresh())).toEqual(['pending', 'pending', 'pending'])
    const [child] = (await queue.list({ parent: parent.id })).jobs
    expect(await queue.cancel(parent.id, { cascade: true })).toBe(true)
    for (const each of [parent, child!]) {
      await each.refresh()
      expect([each.state, ...statuses(each)]).toEqual(['cancelled', 'cancelled', 'cancelled', 'cancelled'])
    }
  })

  test('a job that fails because another did has no phase left that could run', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), jobs, logger: false }))
    const first = await queue.add('marker')
    const second = await queue.add('video', undefined, { after: first })
    const failed = event(queue, 'failed')
    closing(new Worker(queue, quick, { logger: false }))
    await first.cancel()
    await failed
    await second.refresh()
    expect([second.error?.code, ...statuses(second)]).toEqual([
      'DEPENDENCY_FAILED',
      'cancelled',
      'cancelled',
      'cancelled',
    ])
  })
})
