// Declared jobs at run time: schemas of three libraries, at add, before the handler and after it.
import { Worker, defineJobs, job } from 'millrace'
import type { Job, Queue, Store } from 'millrace'
import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { closing, newQueue, newStore } from '../setup.js'

/** The same job in three dialects: `size` goes from text to a number, `tags` has a default, `bytes` must be a number. */
const dialects = {
  zod: defineJobs({
    resize: job({
      input: z.object({
        file: z.object({ path: z.string() }),
        size: z.string().transform(Number),
        tags: z.array(z.string()).default(['none']),
      }),
      output: z.object({ bytes: z.number(), copies: z.number().default(1) }),
    }),
  }),
  valibot: defineJobs({
    resize: job({
      input: v.object({
        file: v.object({ path: v.string() }),
        size: v.pipe(v.string(), v.transform(Number)),
        tags: v.optional(v.array(v.string()), ['none']),
      }),
      output: v.object({ bytes: v.number(), copies: v.optional(v.number(), 1) }),
    }),
  }),
  arktype: defineJobs({
    resize: job({
      input: type({
        file: { path: 'string' },
        size: type('string').pipe((text) => Number(text)),
        tags: type('string[]').default(() => ['none']),
      }),
      output: type({ bytes: 'number', copies: 'number = 1' }),
    }),
  }),
} as const

const good = { file: { path: 'a.png' }, size: '20' }

async function count(queue: Queue): Promise<number> {
  return Object.values(await queue.counts()).reduce((sum, each) => sum + each, 0)
}

function out(): never {
  throw new Error('out of order')
}

/** How a job failed, once it has. */
async function failure(failing: Job): Promise<Job> {
  await expect(failing.result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
  return failing.refresh()
}

// The three are checked apart by the type tests; here one stands for all, so that one test serves them.
describe.each(Object.entries(dialects) as [string, (typeof dialects)['zod']][])(
  'jobs declared with %s',
  (_library, jobs) => {
    test('keep data as it was added, and show handlers what the schema makes of it', async () => {
      const queue = newQueue({ jobs })
      const seen: unknown[] = []
      closing(
        new Worker(
          queue,
          {
            resize: (each) => {
              seen.push(each.data)
              return { bytes: each.data.size * 2 }
            },
          },
          { logger: false },
        ),
      )
      const added = await queue.add('resize', good)
      expect(added.data).toEqual(good)
      expect(await added.result()).toEqual({ bytes: 40, copies: 1 })
      expect(seen).toEqual([{ ...good, size: 20, tags: ['none'] }])
      expect((await added.refresh()).data).toEqual(good)
      expect(added.returned).toEqual({ bytes: 40, copies: 1 })
    })

    test('are refused at add with the path of what is wrong, and nothing is written', async () => {
      const queue = newQueue({ jobs })
      const wrong = { file: { path: 5 }, size: '20' } as never
      await expect(queue.add('resize', wrong)).rejects.toMatchObject({
        code: 'INVALID_PAYLOAD',
        message: expect.stringMatching(/'resize'.*file\.path/),
        details: { name: 'resize', issues: [expect.stringContaining('file.path')] },
      })
      await expect(queue.add('resize', undefined as never)).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
      await expect(
        queue.addBulk([
          { name: 'resize', data: good },
          { name: 'resize', data: wrong },
        ]),
      ).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
      expect(await count(queue)).toBe(0)
    })

    test('are refused at update, and keep what they had', async () => {
      const queue = newQueue({ jobs })
      const added = await queue.add('resize', good)
      const wrong = { ...good, size: 20 } as never
      await expect(added.update({ data: wrong })).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
      await expect(queue.update(added.id, { data: wrong })).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
      expect(await added.update({ data: { ...good, size: '30' } })).toBe(true)
      expect((await added.refresh()).data).toEqual({ ...good, size: '30' })
    })

    test('fail for good, without being handled, over data that came in unchecked', async () => {
      const store = newStore()
      const queue = newQueue({ store, jobs })
      let runs = 0
      closing(
        new Worker(
          queue,
          {
            resize: () => {
              runs++
              return { bytes: 1 }
            },
          },
          { logger: false },
        ),
      )
      const bad = await failure(await newQueue({ store }).add('resize', { file: {}, size: '20' }, { attempts: 5 }))
      expect(bad).toMatchObject({ state: 'failed', attempt: 1, error: { code: 'INVALID_PAYLOAD' } })
      expect(bad.error?.message).toContain('file.path')
      expect(runs).toBe(0)
    })

    test('fail for good over a result that the schema refuses', async () => {
      const queue = newQueue({ jobs })
      closing(new Worker(queue, { resize: async () => ({ bytes: 'many' }) as never }, { logger: false }))
      const bad = await failure(await queue.add('resize', good, { attempts: 5 }))
      expect(bad).toMatchObject({ state: 'failed', attempt: 1, error: { code: 'INVALID_RESULT' } })
      expect(bad.error?.message).toContain('bytes')
    })
  },
)

describe('a schema that takes its time', () => {
  const known = new Set(['a'])
  const jobs = defineJobs({
    check: job({
      input: z.object({ user: z.string().refine(async (user) => known.has(user), 'nobody by that name') }),
      output: z.string().refine(async (text) => text !== 'nonsense', 'no nonsense'),
    }),
  })

  test('is waited for at add', async () => {
    const queue = newQueue({ jobs })
    await expect(queue.add('check', { user: 'b' })).rejects.toMatchObject({
      code: 'INVALID_PAYLOAD',
      message: expect.stringContaining('user: nobody by that name'),
    })
    await expect(
      queue.addBulk([
        { name: 'check', data: { user: 'a' } },
        { name: 'check', data: { user: 'b' } },
      ]),
    ).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
    expect(await count(queue)).toBe(0)
  })

  test('is waited for before and after the handler', async () => {
    const queue = newQueue({ jobs })
    const answers = ['sense', 'nonsense']
    closing(new Worker(queue, { check: () => answers.shift() ?? '' }, { logger: false }))
    expect(await (await queue.add('check', { user: 'a' })).result()).toBe('sense')
    const bad = await failure(await queue.add('check', { user: 'a' }))
    expect(bad.error).toMatchObject({ code: 'INVALID_RESULT', message: expect.stringContaining('no nonsense') })
  })

  test('keeps the order of a bulk', async () => {
    const queue = newQueue({ jobs })
    const added = await queue.addBulk([
      { name: 'check', data: { user: 'a' }, options: { id: 'one' } },
      { name: 'check', data: { user: 'a' }, options: { id: 'two' } },
    ])
    expect(added.map((each) => each.id)).toEqual(['one', 'two'])
    expect((await queue.list()).jobs.map((each) => each.id)).toEqual(['one', 'two'])
  })
})

describe('a schema that throws', () => {
  const jobs = defineJobs({
    taking: job({ input: z.string().transform(out) }),
    giving: job({ output: z.string().transform(out) }),
  })

  test('refuses at add', async () => {
    const queue = newQueue({ jobs })
    await expect(queue.add('taking', 'x')).rejects.toMatchObject({
      code: 'INVALID_PAYLOAD',
      message: expect.stringContaining('out of order'),
    })
    expect(await count(queue)).toBe(0)
  })

  test('fails the job for good at the worker', async () => {
    const store = newStore()
    const queue = newQueue({ store, jobs })
    closing(new Worker(queue, { taking: () => 'x', giving: () => 'x' }, { logger: false }))
    const taken = await failure(await newQueue({ store }).add('taking', 'x'))
    expect(taken).toMatchObject({ attempt: 1, error: { code: 'INVALID_PAYLOAD' } })
    const given = await failure(await queue.add('giving', 'x'))
    expect(given).toMatchObject({ attempt: 1, error: { code: 'INVALID_RESULT' } })
  })
})

describe('declared jobs', () => {
  const jobs = defineJobs({
    plain: job<{ n: number }, number>({ attempts: 1 }),
    optional: job({ input: z.string().default('nothing') }),
  })

  test('of plain types are not checked at run time', async () => {
    const queue = newQueue({ jobs })
    closing(new Worker(queue, { plain: (each) => each.data.n }, { logger: false }))
    expect(await (await queue.add('plain', { n: 'five' } as never)).result()).toBe('five')
  })

  test('may be added without data where the schema has a default', async () => {
    const queue = newQueue({ jobs })
    closing(new Worker(queue, { optional: (each) => each.data }, { logger: false }))
    expect(await (await queue.add('optional')).result()).toBe('nothing')
  })

  test('have the defaults they were declared with, before those of the queue and after those of add', async () => {
    const queue = newQueue({ jobs, defaults: { attempts: 7, priority: 3 } })
    expect(await queue.add('plain', { n: 1 })).toMatchObject({ attempts: 1, priority: 3 })
    expect(await queue.add('plain', { n: 1 }, { attempts: 2, priority: 0 })).toMatchObject({ attempts: 2, priority: 0 })
    expect(await queue.add('optional')).toMatchObject({ attempts: 7 })
  })

  test('are the only ones: other names are refused, with the nearest', async () => {
    const queue = newQueue({ jobs })
    await expect(queue.add('plan' as 'plain', { n: 1 })).rejects.toMatchObject({
      code: 'UNKNOWN_JOB',
      message: expect.stringContaining("did you mean 'plain'?"),
    })
    await expect(queue.add('toString' as 'plain', { n: 1 })).rejects.toMatchObject({ code: 'UNKNOWN_JOB' })
  })
})

describe('a version', () => {
  const first = defineJobs({ mail: job<string, string>() })
  const second = defineJobs({ mail: job<{ to: string }, string>({ version: 2 }) })
  const worker = (store: Store, jobs: typeof first | typeof second, says: string): void => {
    closing(new Worker('work', async () => says, { store, jobs, logger: false }))
  }

  test('is written on each job, 1 by default', async () => {
    const store = newStore()
    expect((await newQueue({ store }).add('mail')).version).toBe(1)
    expect((await newQueue({ store, jobs: first }).add('mail', 'a')).version).toBe(1)
    expect((await newQueue({ store, jobs: second }).add('mail', { to: 'a' })).version).toBe(2)
  })

  test('is claimed only by workers that know it', async () => {
    const store = newStore()
    const old = await newQueue({ store, jobs: first }).add('mail', 'a')
    const young = await newQueue({ store, jobs: second }).add('mail', { to: 'a' })
    worker(store, second, 'second')
    expect(await young.result()).toBe('second')
    expect((await old.refresh()).state).toBe('waiting')
    worker(store, first, 'first')
    expect(await old.result()).toBe('first')
  })
})
