// Declarations that a producer imports without schemas, and what types alone cannot do.
import { FlowProducer, Queue, Worker, defineJobs, job, withSchemas } from 'millrace'
import type { DataOf, InputOf, JobDefinitions, ReturnOf, Store } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { z } from 'zod'

declare const store: Store

const light = defineJobs({
  email: job<{ to: string; copies?: number }, { id: string }>({ version: 2, attempts: 5 }),
  sweep: job<undefined, number>(),
})
const jobs = withSchemas(light, {
  email: {
    input: z.object({ to: z.string(), copies: z.number().default(0) }),
    output: z.object({ id: z.string().default('') }),
  },
})

describe('withSchemas', () => {
  test('keeps what was declared, and gives handlers what the schemas make', () => {
    expectTypeOf<InputOf<(typeof jobs)['email']>>().toEqualTypeOf<{ to: string; copies?: number }>()
    expectTypeOf<DataOf<(typeof jobs)['email']>>().toEqualTypeOf<{ to: string; copies: number }>()
    expectTypeOf<ReturnOf<(typeof jobs)['email']>>().toEqualTypeOf<{ id?: string | undefined }>()
    expectTypeOf<(typeof jobs)['sweep']>().toEqualTypeOf<(typeof light)['sweep']>()
    void new Worker(new Queue('q', { store, jobs }), {
      email: (each) => ({ id: each.data.to.repeat(each.data.copies) }),
      sweep: () => 5,
    })
  })

  test('takes schemas that make something else of a payload or a result', () => {
    const made = withSchemas(light, {
      email: {
        input: z.object({ to: z.string().transform((text) => new URL(text)), copies: z.number().optional() }),
        output: z.object({ id: z.number().transform(String) }),
      },
    })
    expectTypeOf<InputOf<(typeof made)['email']>>().toEqualTypeOf<{ to: string; copies?: number }>()
    void new Worker(new Queue('q', { store, jobs: made }), { email: (each) => ({ id: Number(each.data.to.port) }) })
  })

  test('refuses schemas of other names and of other types', () => {
    // @ts-expect-error there is no such job
    withSchemas(light, { emails: { input: z.object({ to: z.string() }) } })
    // @ts-expect-error `add` takes text
    withSchemas(light, { email: { input: z.object({ to: z.number() }) } })
    // @ts-expect-error `add` does not ask for a subject
    withSchemas(light, { email: { input: z.object({ to: z.string(), subject: z.string() }) } })
    // @ts-expect-error the result has an id
    withSchemas(light, { email: { output: z.object({ name: z.string() }) } })
  })
})

test('types alone make neither a queue nor a producer of flows: options and versions would be lost', () => {
  // @ts-expect-error give it the jobs
  void new Queue<typeof jobs>('q', { store })
  // @ts-expect-error give it the jobs
  void new FlowProducer<typeof jobs>({ store })
  void new Queue<typeof light>('q', { store, jobs: light })
  void new Queue('q', { store })
})

test('types alone make no worker by name: it would claim all versions, check nothing and lose options of what it adds', () => {
  const handlers = { sweep: () => 5 }
  // @ts-expect-error give it a queue, or leave out the type and give it the jobs
  void new Worker<typeof light>('q', handlers, { store })
  // @ts-expect-error the same for several queues
  void new Worker<typeof light>(['q', 'r'], handlers, { store })
  void new Worker('q', handlers, { store, jobs: light })
  void new Worker('q', handlers, { store })
  void new Worker<typeof light>(new Queue('q', { store, jobs: light }), handlers)
  void new Worker<JobDefinitions>(['q'], () => 5, { store })
  const typed: Worker<typeof light> = new Worker('q', handlers, { store, jobs: light })
  const any: Worker = new Worker('q', handlers, { store })
  expectTypeOf([typed.id, any.id]).toEqualTypeOf<string[]>()
})
