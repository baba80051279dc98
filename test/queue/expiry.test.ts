// Jobs that expire unless they are started in time.
import { describe, expect, test } from 'vitest'
import { FlowProducer, Queue, Worker, isMillraceError } from 'millrace'
import type { AddOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { kinds, stores } from '../stores.js'
import { closing, event } from '../setup.js'

const make = stores()

const codeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => isMillraceError(error) && error.code,
  )

describe.each(kinds)('on %s', (kind) => {
  test('a job that no worker starts in time is cancelled, and whoever waits for it is told', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const ran: string[] = []
    const worker = new Worker(queue, { chore: (job) => void ran.push(job.id) }, { logger: false })
    closing(worker)
    await queue.pause()
    const cancelled = event(queue, 'cancelled')
    const added = await queue.add('chore', 1, { expires: 5 })
    expect(added.expiresAt).toBe(added.createdAt + 5)
    const dependent = await queue.add('after', 1, { after: added })
    expect(await codeOf(added.result())).toBe('JOB_EXPIRED')
    expect(await cancelled).toMatchObject({ id: added.id, error: { code: 'JOB_EXPIRED' } })
    expect(await added.refresh()).toMatchObject({ state: 'cancelled', attempt: 0, error: { code: 'JOB_EXPIRED' } })
    expect((await queue.explain(added.id)).text).toContain('not started before it expired')
    expect(await codeOf(dependent.result())).toBe('JOB_FAILED')
    await queue.resume()
    await added.retry()
    await added.result()
    expect(ran).toEqual([added.id])
  })

  test('a job that is started in time runs to its end', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false, defaults: { expires: '1h' } }))
    const added = await queue.add('chore', 1)
    closing(new Worker(queue, { chore: () => 'done' }, { logger: false }))
    expect(await added.result()).toBe('done')
    expect(added.expiresAt).toBe(added.createdAt + 3_600_000)
  })
})

test('an expiry that cannot be met is refused, and nothing is written', async () => {
  const store = memory()
  const queue = closing(new Queue('work', { store, logger: false }))
  const past = new Date(Date.now() - 60_000)
  const wrong: readonly (readonly [options: AddOptions, code: string])[] = [
    [{ expires: past }, 'INVALID_DATE'],
    [{ expires: new Date(Number.NaN) }, 'INVALID_DATE'],
    [{ expires: 0 }, 'INVALID_DURATION'],
    [{ expires: Date.now() + 1_000 }, 'INVALID_OPTION'],
    [{ expires: '1s', delay: '1m' }, 'INVALID_OPTION'],
    [{ expires: new Date(Date.now() + 1_000), delay: '1m' }, 'INVALID_OPTION'],
    [{ expires: '1s', runAt: new Date(Date.now() + 60_000) }, 'INVALID_OPTION'],
  ]
  for (const [options, code] of wrong) {
    expect(await codeOf(queue.add('chore', 1, options))).toBe(code)
    expect(
      await codeOf(
        queue.addBulk([
          { name: 'chore', data: 1 },
          { name: 'chore', data: 2, options },
        ]),
      ),
    ).toBe(code)
  }
  expect(await codeOf(queue.add('chore', 1, { expires: 'soon' }))).toBe('INVALID_DURATION')
  const flows = closing(new FlowProducer({ store }))
  const children = [{ name: 'part', queueName: 'work', options: { expires: past } }]
  expect(await codeOf(flows.add({ name: 'whole', queueName: 'work', children }))).toBe('INVALID_DATE')
  const run = { name: 'chore', every: '1h', options: { expires: new Date(Date.now() + 60_000) } } as const
  expect(await codeOf(queue.schedule('nightly', run))).toBe('INVALID_OPTION')
  expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0, 'waiting-children': 0 })
})

test('an expiry of a schedule counts from the time of each run', async () => {
  const queue = closing(new Queue('work', { store: memory(), logger: false }))
  await queue.schedule('often', { name: 'chore', every: 10, options: { expires: '1h' } })
  const completed = event(queue, 'completed')
  closing(new Worker(queue, { chore: () => 1 }, { logger: false }))
  const run = (await queue.get((await completed).id))!
  expect(run.expiresAt).toBe(run.createdAt + 3_600_000)
})

test('is refused as a date in the defaults of a queue, where every later add would fail', () => {
  const make = () => new Queue('dated', { store: memory(), defaults: { expires: new Date() as never } })
  expect(make).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining('defaults') }),
  )
})
