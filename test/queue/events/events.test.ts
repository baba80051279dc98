// The fields of events, and that there are no others, on every store.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, phases } from 'millrace'
import type { QueueEvent } from 'millrace'
import { closing, gate } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

describe.each(kinds)('on %s', (kind) => {
  test('an event has the fields that its type declares, and no others', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const seen: QueueEvent[] = []
    for (const type of ['waiting', 'delayed', 'active', 'phase', 'progress', 'completed', 'retrying'] as const) {
      queue.on(type, (each) => void seen.push(each))
    }
    const ended = new Promise((resolve) => queue.on('completed', resolve))
    const worker = closing(
      new Worker(
        queue,
        {
          work: phases({
            one: async (job, ctx) => {
              await ctx.progress(50)
              if (job.attempt === 1) throw new Error('once')
            },
          }),
        },
        { logger: false, autorun: false },
      ),
    )
    await queue.add('work', undefined, { attempts: 2, backoff: 1 })
    await worker.run()
    await ended
    const fields = new Map(seen.map((each) => [say(each), Object.keys(each).toSorted().join(' ')]))
    const base = (...more: string[]): string => [...more, 'at', 'id', 'name', 'queue', 'type'].toSorted().join(' ')
    expect(Object.fromEntries(fields)).toEqual({
      waiting: base(),
      active: base('attempt', 'worker'),
      'phase active': base('phase', 'status'),
      progress: base('phase', 'phaseProgress', 'progress'),
      'phase failed': base('error', 'phase', 'status'),
      retrying: base('attempt', 'error', 'runAt'),
      delayed: base('runAt'),
      'phase completed': base('phase', 'status'),
      completed: base('attempt', 'result'),
    })
  })

  test('a worker emits the last progress of a handler before how it ended', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const last = (ctx: { progress(percent: number): Promise<void> }): void => void ctx.progress(50)
    const worker = closing(
      new Worker(
        queue,
        {
          'at once': (_job, ctx) => last(ctx),
          'a moment later': async (_job, ctx) => {
            last(ctx)
            await Promise.resolve()
          },
          'in a phase': phases({ one: (_job, ctx) => last(ctx) }),
        },
        { logger: false, autorun: false },
      ),
    )
    const reported: string[] = []
    for (const type of ['progress', 'phase', 'completed'] as const) {
      worker.on(type, (each) => void (each.name === name && reported.push(say(each))))
    }
    let name = 'at once'
    const run = async (next: string): Promise<string[]> => {
      name = next
      const { promise, open } = gate()
      const stop = worker.on('completed', () => setImmediate(open))
      await queue.add(next)
      await promise
      stop()
      return reported.splice(0)
    }
    await worker.run()
    expect(await run('at once')).toEqual(['progress', 'completed'])
    expect(await run('a moment later')).toEqual(['progress', 'completed'])
    expect(await run('in a phase')).toEqual(['phase active', 'progress', 'phase completed', 'completed'])
  })
})

function say(event: QueueEvent): string {
  return event.type === 'phase' ? `phase ${event.status}` : event.type
}
