// The readable name of a worker: where it is shown, and which names are refused.
import { describe, expect, it, vi } from 'vitest'
import { Worker } from 'millrace'
import type { Logger } from 'millrace'
import { systemRuntime } from '../../src/store/runtime.js'
import { workerId, workerNameIn } from '../../src/job/values/names.js'
import { closing, event, gate, newQueue, newWorker } from '../setup.js'
import { served, stores } from '../stores.js'
import { thrown } from '../thrown.js'

const make = stores()
const UUID = /^[0-9a-f-]{36}$/

describe.each(served)('a worker with a name, on %s', (kind) => {
  it('shows it in leases, in events of every process, in the registry and in explain', async () => {
    const store = await make(kind)
    const queue = newQueue({ store })
    const [started, active] = [event(queue, 'worker-started'), event(queue, 'active')]
    const end = gate()
    const worker = newWorker(queue, () => end.promise, { workerName: 'mail 1' })
    expect(worker).toMatchObject({ name: 'mail 1', id: expect.stringMatching(/^mail 1:[0-9a-f-]{36}$/) })
    const job = await queue.add('send')
    expect(await started).toMatchObject({ worker: worker.id })
    expect(await active).toMatchObject({ worker: worker.id })
    expect((await job.refresh()).worker).toBe(worker.id)
    const { text, reasons } = await queue.explain(job.id)
    expect(text).toContain(`worker mail 1:`)
    expect(reasons).toMatchObject([{ why: 'running', worker: worker.id }])
    const { cells } = await store.details({ cellsUnder: 'worker:' })
    expect(JSON.parse(cells[0]!.value)).toMatchObject({ id: worker.id, name: 'mail 1' })
    end.open()
    await job.result()
    expect((await job.refresh()).worker).toBe(worker.id)
  })
})

it('two workers of one name are two workers', async () => {
  const queue = newQueue()
  const end = gate()
  const workers = [1, 2].map(() => newWorker(queue, () => end.promise, { workerName: 'mail' }))
  expect(new Set(workers.map(({ id }) => id)).size).toBe(2)
  const active = new Set<string>()
  const both = new Promise<void>((resolve) => {
    queue.on('active', (each) => {
      active.add(each.worker)
      if (active.size === 2) resolve()
    })
  })
  await queue.addBulk([{ name: 'a' }, { name: 'b' }])
  await both
  expect(active).toEqual(new Set(workers.map(({ id }) => id)))
  end.open()
})

it('a worker without a name has an id of its unique part alone', () => {
  const worker = newWorker(newQueue(), () => {}, { autorun: false })
  expect(worker.name).toBeUndefined()
  expect(worker.id).toMatch(UUID)
})

it('log lines about jobs name the worker', async () => {
  const lines: { message: string; details: object }[] = []
  const log = (details: object, message: string): void => void lines.push({ message, details })
  const logger: Logger = { debug: log, info: log, warn: log, error: log }
  const queue = newQueue()
  const worker = newWorker(queue, () => 'done', { logger, workerName: 'mail' })
  await (await queue.add('send')).result()
  await worker.close()
  expect(lines).toEqual(
    ['job claimed', 'job completed'].map((message) => ({
      message,
      details: expect.objectContaining({ worker: worker.id }),
    })),
  )
})

it('the line about a failure names the worker, if it has a name', async () => {
  const printed = vi.spyOn(console, 'error').mockImplementation(() => {})
  try {
    const queue = newQueue()
    const failing = async (workerName?: string): Promise<void> => {
      const throwing = (): never => {
        throw new Error('no')
      }
      const worker = closing(new Worker(queue, throwing, workerName === undefined ? {} : { workerName }))
      const failed = event(worker, 'failed')
      await queue.add('send', undefined, { attempts: 1 })
      await failed
      await worker.close()
    }
    await failing('mail')
    await failing()
    expect(printed.mock.calls[0]![0]).toContain("in queue 'work' on worker 'mail' failed for good")
    expect(printed.mock.calls[1]![0]).toContain("in queue 'work' failed for good")
  } finally {
    printed.mockRestore()
  }
})

describe('the name of a worker', () => {
  it.each([
    ['', 'INVALID_NAME', 'must not be empty'],
    [7, 'INVALID_NAME', 'must be a string'],
    [null, 'INVALID_NAME', 'must be a string'],
    ['a\nb', 'INVALID_NAME', 'control characters'],
    ['x'.repeat(219), 'INVALID_NAME', 'it has 219 characters, and 218 is the most'],
    ['millrace:own', 'RESERVED_NAME', 'choose another'],
  ])('is refused if it is %j', (workerName, code, message) => {
    const error = thrown(() => new Worker(newQueue(), () => {}, { workerName: workerName as string, logger: false }))
    expect(error).toMatchObject({ code, message: expect.stringContaining(message) })
  })

  it('may have 218 characters, so that the id is no longer than others', () => {
    const worker = newWorker(newQueue(), () => {}, { workerName: 'ü'.repeat(218), autorun: false })
    expect(worker.id).toHaveLength(255)
  })

  it('is called workerName here, not workerId', () => {
    const error = thrown(() => new Worker(newQueue(), () => {}, { workerId: 'mail' } as never))
    expect(error).toMatchObject({ code: 'UNKNOWN_OPTION', message: expect.stringContaining("'workerName'") })
  })

  it.each([undefined, 'mail', 'a:b', ':', 'host 7:api'])('can be read from the id again: %s', (name) => {
    expect(workerNameIn(workerId(name, systemRuntime().id()))).toBe(name)
  })

  it('is not read from an id that another program chose', () => {
    for (const id of ['', 'dead', ':', `:${'x'.repeat(36)}`]) expect(workerNameIn(id)).toBeUndefined()
  })
})
