// Jobs whose names are those of methods of functions: their handlers know their jobs all the same.
import { describe, expectTypeOf, test } from 'vitest'
import { Queue, Worker, defineJobs, job, typed } from 'millrace'
import type { Job } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()

describe('handlers of jobs named like methods of functions', () => {
  test('know the data of declared jobs', () => {
    const jobs = defineJobs({
      call: job({ input: typed<{ to: string }>() }),
      apply: job({ input: typed<number>() }),
      bind: job({ input: typed<boolean>() }),
      toString: job({ input: typed<'text'>() }),
      prototype: job({ input: typed<1>() }),
      arguments: job({ input: typed<2>() }),
    })
    const queue = new Queue('names', { store, jobs })
    void new Worker(queue, {
      call: ({ data }) => expectTypeOf(data).toEqualTypeOf<{ to: string }>(),
      apply: ({ data }, ctx) => {
        expectTypeOf(data).toEqualTypeOf<number>()
        expectTypeOf(ctx.log).toBeFunction()
      },
      bind: { run: ({ data }) => expectTypeOf(data).toEqualTypeOf<boolean>() },
      toString: ({ data }) => expectTypeOf(data).toEqualTypeOf<'text'>(),
      prototype: ({ data }) => expectTypeOf(data).toEqualTypeOf<1>(),
      arguments: ({ data }) => expectTypeOf(data).toEqualTypeOf<2>(),
    })
    void new Worker(queue, (each) => {
      if (each.name === 'call') expectTypeOf(each.data).toEqualTypeOf<{ to: string }>()
    })
    // @ts-expect-error its data has another type
    void new Worker(queue, { apply: ({ data }) => data.length })
    // @ts-expect-error a handler is a function
    void new Worker(queue, { call: 5 })
  })

  test('know jobs that are not declared', () => {
    const queue = new Queue('names', { store })
    void new Worker(queue, { call: (each) => expectTypeOf(each).toExtend<Job>(), bind: async (each) => each.id })
    void new Worker(queue, { apply: (all) => all.map(({ id }) => id) }, { batch: { size: 3 } })
    void new Worker(queue, (each) => each.id)
    void new Worker(queue, (all) => all.map(({ id }) => id), { batch: { size: 3 } })
  })
})
