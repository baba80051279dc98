// What a job did and when: its attempts, its steps and its timeline.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, isMillraceError, phases } from 'millrace'
import type { TimelineEntry } from 'millrace'
import { kinds, stores } from '../../stores.js'
import { closing } from '../../setup.js'

const make = stores()

/** Each entry begins no earlier than the one before, and none ends before it begins. */
function expectOrdered(entries: readonly TimelineEntry[]): void {
  for (const [n, entry] of entries.entries()) {
    if (n > 0) expect(entry.at).toBeGreaterThanOrEqual(entries[n - 1]!.at)
    if ('until' in entry && entry.until !== undefined) expect(entry.until).toBeGreaterThanOrEqual(entry.at)
  }
}

describe.each(kinds)('on %s', (kind) => {
  test('the attempts of a job have their start, end, worker and outcome', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    let runs = 0
    const handlers = {
      order: async (_job: unknown, ctx: { snooze(time: number): Promise<void> }) => {
        runs++
        if (runs === 1) throw new Error('boom')
        if (runs === 2) await ctx.snooze(1)
        return 'done'
      },
    }
    const added = await queue.add('order', undefined, { attempts: 3, backoff: 1 })
    closing(new Worker(queue, handlers, { logger: false, workerName: 'w' }))
    await added.result()
    await added.refresh()
    const history = await added.history()
    expect(history.map(({ attempt, outcome }) => [attempt, outcome])).toEqual([
      [1, 'retried'],
      [2, 'snoozed'],
      [2, 'completed'],
    ])
    expect(history[0]).toMatchObject({ error: { message: 'boom' }, worker: added.worker })
    for (const { startedAt, endedAt } of history) expect(endedAt).toBeGreaterThanOrEqual(startedAt)
    expect(history[2]).toMatchObject({ startedAt: added.startedAt, endedAt: added.finishedAt, worker: added.worker })
    expect(added.errors).toMatchObject([{ outcome: 'retried', startedAt: history[0]!.startedAt, worker: added.worker }])
    expect(await added.history({ limit: 2 })).toEqual(history.slice(0, 2))
    expect(await added.history({ after: history[1]!.fence, limit: 2 })).toEqual(history.slice(2))
  })

  test('a job that has not started has no attempts, and one that runs has one without an end', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const added = await queue.add('order')
    expect(await added.history()).toEqual([])
    const { entries, totals } = await added.timeline()
    expect(entries).toEqual([
      { kind: 'added', at: added.createdAt },
      { kind: 'queued', at: added.createdAt },
    ])
    expect(totals.ran).toBe(0)
    const [claimed] = await queue.claim({ names: ['order'] })
    expect(await added.history()).toMatchObject([{ attempt: 1, outcome: 'running', worker: expect.any(String) }])
    await claimed!.complete()
    expect(await added.history()).toMatchObject([{ attempt: 1, outcome: 'completed' }])
  })

  test('the wait for a date, or for other jobs, is told apart from the wait in the queue', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const delayed = await queue.add('order', undefined, { delay: 20 })
    const [claimed] = await queue.claim({ names: ['order'], wait: '10s' })
    const running = await delayed.timeline()
    expect(running.totals).toMatchObject({ delayed: 20, dependencies: 0 })
    expect(running.entries[1]).toEqual({ kind: 'delayed', at: delayed.createdAt, until: delayed.createdAt + 20 })
    await claimed!.complete()
    await delayed.refresh()
    expect((await delayed.timeline()).totals).toMatchObject({
      delayed: 20,
      queued: delayed.startedAt! - delayed.createdAt - 20,
    })
    expect(delayed.runAt).toBeUndefined()

    const first = await queue.add('first', undefined, { delay: 20 })
    const second = await queue.add('second', undefined, { after: first })
    await (await queue.claim({ names: ['first'], wait: '10s' }))[0]!.complete()
    await queue.claim({ names: ['second'], wait: '10s' })
    await Promise.all([first.refresh(), second.refresh()])
    const { totals } = await second.timeline()
    expect(totals).toMatchObject({ delayed: 0, dependencies: first.finishedAt! - second.createdAt })
    expect(totals.dependencies + totals.queued).toBe(second.startedAt! - second.createdAt)

    const dropped = await queue.add('order', undefined, { delay: '1h' })
    await dropped.cancel()
    const { entries } = await dropped.timeline()
    expect(entries.map(({ kind: each }) => each)).not.toContain('queued')
  })

  test('a timeline holds waits, attempts, steps, sleeps and log lines in their order', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    let runs = 0
    const added = await queue.add('order', undefined, { attempts: 2, backoff: 1 })
    const worker = new Worker(
      queue,
      {
        order: async (_job, ctx) => {
          await ctx.step('charge', () => 12)
          await ctx.log('charged')
          if (++runs === 1) throw new Error('boom')
          await ctx.sleep('a while', 1)
        },
      },
      { logger: false },
    )
    closing(worker)
    await added.result()
    const { entries, totals, truncated } = await added.timeline()
    expectOrdered(entries)
    const kinds = entries.map(({ kind: each }) => each)
    const first = kinds.filter((each) => each !== 'queued' && each !== 'backoff' && each !== 'sleep')
    expect(first.filter((each) => each === 'attempt')).toHaveLength(3)
    expect([first[0], first.at(-1)]).toEqual(['added', 'completed'])
    expect(entries).toContainEqual(expect.objectContaining({ kind: 'step', name: 'charge' }))
    expect(entries).toContainEqual(expect.objectContaining({ kind: 'log', line: 'charged', attempt: 1 }))
    expect(kinds).toEqual(expect.arrayContaining(['backoff', 'sleep']))
    expect(truncated).toBe(false)
    const { ran, waited, queued, delayed, backoff, sleep, dependencies } = totals
    expect(waited).toBe(queued + delayed + backoff + sleep + dependencies)
    await added.refresh()
    expect(ran + waited).toBe(added.finishedAt! - added.createdAt)
    expect(await added.steps()).toMatchObject([
      { name: 'charge', kind: 'step', result: 12, startedAt: expect.any(Number), endedAt: expect.any(Number) },
      { name: 'a while', kind: 'sleep', result: undefined },
    ])
  })

  test('the phases of a job have a start and an end, within the job', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const added = await queue.add('order')
    const handlers = { order: phases({ download: () => 1, process: () => 2, upload: () => 3 }) }
    closing(new Worker(queue, handlers, { logger: false }))
    await added.result()
    await added.refresh()
    const times = Object.values(added.phases).flatMap(({ startedAt, endedAt }) => [startedAt!, endedAt!])
    expect(times.toSorted((a, b) => a - b)).toEqual(times)
    expect(times[0]).toBeGreaterThanOrEqual(added.startedAt!)
    expect(times.at(-1)).toBe(added.finishedAt)
    const { entries } = await added.timeline()
    const seen = entries.flatMap((entry) => (entry.kind === 'phase' ? [[entry.name, entry.status]] : []))
    expect(seen).toEqual([
      ['download', 'completed'],
      ['process', 'completed'],
      ['upload', 'completed'],
    ])
  })

  test('wrong options are refused, and so is a job that is not there', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const added = await queue.add('order')
    const codeOf = (work: Promise<unknown>): Promise<unknown> =>
      work.then(
        () => undefined,
        (error: unknown) => isMillraceError(error) && error.code,
      )
    expect(await codeOf(added.history({ limit: 51 }))).toBe('INVALID_OPTION')
    expect(await codeOf(added.history({ after: 0.5 }))).toBe('INVALID_OPTION')
    await added.remove()
    for (const read of [added.history(), added.steps(), added.timeline()]) {
      expect(await codeOf(read)).toBe('JOB_NOT_FOUND')
    }
  })
})
