// What a declared job takes, shows, returns and gives, whatever it was declared with.
import { defineJobs, job } from 'millrace'
import type { DataOf, InputOf, JobDefinition, NameOf, ResultOf, ReturnOf } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import { jobs } from './jobs.js'

type Jobs = typeof jobs

describe('a job declared with zod', () => {
  test('takes what the schema takes and shows what it makes of it', () => {
    expectTypeOf<InputOf<Jobs['email']>>().toEqualTypeOf<{ to: string; cc?: string[] | undefined; at: string }>()
    expectTypeOf<DataOf<Jobs['email']>>().toEqualTypeOf<{ to: string; cc: string[]; at: Date }>()
  })

  test('may return what the output schema takes, and gives what it makes of it', () => {
    expectTypeOf<ReturnOf<Jobs['email']>>().toEqualTypeOf<{ messageId: string; copies?: number | undefined }>()
    expectTypeOf<ResultOf<Jobs['email']>>().toEqualTypeOf<{ messageId: string; copies: number }>()
  })
})

describe('a job declared with valibot', () => {
  test('takes what the schema takes and shows what it makes of it', () => {
    expectTypeOf<InputOf<Jobs['resize']>>().toEqualTypeOf<{ path: string; size: string }>()
    expectTypeOf<DataOf<Jobs['resize']>>().toEqualTypeOf<{ path: string; size: number }>()
  })

  test('may return what the output schema takes, and gives what it makes of it', () => {
    expectTypeOf<ReturnOf<Jobs['resize']>>().toEqualTypeOf<{ bytes?: number | undefined }>()
    expectTypeOf<ResultOf<Jobs['resize']>>().toEqualTypeOf<{ bytes: number }>()
  })
})

describe('a job declared with arktype', () => {
  test('takes what the schema takes and shows what it makes of it', () => {
    expectTypeOf<InputOf<Jobs['crawl']>>().toEqualTypeOf<{ url: string; page?: number }>()
    expectTypeOf<DataOf<Jobs['crawl']>>().toEqualTypeOf<{ url: string; page: number }>()
  })

  test('returns and gives what the output schema declares', () => {
    expectTypeOf<ReturnOf<Jobs['crawl']>>().toEqualTypeOf<{ links: string[] }>()
    expectTypeOf<ResultOf<Jobs['crawl']>>().toEqualTypeOf<{ links: string[] }>()
  })
})

describe('a job declared with plain types', () => {
  test('has one type for input and data, and one for what is returned and given', () => {
    expectTypeOf<Jobs['charge']>().toEqualTypeOf<
      JobDefinition<{ cents: number }, { cents: number }, { receipt: string }>
    >()
    expectTypeOf<ReturnOf<Jobs['charge']>>().toEqualTypeOf<{ receipt: string }>()
  })

  test('keeps undefined where it was asked for', () => {
    expectTypeOf<InputOf<Jobs['sweep']>>().toEqualTypeOf<undefined>()
  })

  test('may have a type of input alone', () => {
    const one = job<string>()
    expectTypeOf<InputOf<typeof one>>().toEqualTypeOf<string>()
    expectTypeOf<ResultOf<typeof one>>().toEqualTypeOf<unknown>()
  })
})

describe('job()', () => {
  test('leaves unknown what was not declared', () => {
    expectTypeOf<Jobs['loose']>().toEqualTypeOf<JobDefinition>()
    expectTypeOf<ResultOf<Jobs['ping']>>().toEqualTypeOf<unknown>()
    const output = job({ output: z.number() })
    expectTypeOf<InputOf<typeof output>>().toEqualTypeOf<unknown>()
    expectTypeOf<ResultOf<typeof output>>().toEqualTypeOf<number>()
  })

  test('refuses what is no schema, no option, or both types and schemas', () => {
    // @ts-expect-error a number is no schema
    job({ input: 5 })
    // @ts-expect-error a plain object is no schema
    job({ output: { messageId: 'string' } })
    // @ts-expect-error it is `attempts`
    job({ attemps: 3 })
    // @ts-expect-error attempts are a number
    job({ attempts: '3' })
    // @ts-expect-error there is no such backoff
    job({ backoff: { type: 'exponentially', delay: '1s' } })
    // @ts-expect-error the id is given to `add`
    job({ id: 'x' })
    // @ts-expect-error the types come either from the schema or from the brackets
    job<{ to: string }>({ input: z.object({ to: z.string() }) })
  })
})

describe('defineJobs', () => {
  test('knows the names', () => {
    type Names = 'email' | 'resize' | 'crawl' | 'charge' | 'sweep' | 'report' | 'ping' | 'loose'
    expectTypeOf<NameOf<Jobs>>().toEqualTypeOf<Names>()
  })

  test('gathers what was declared elsewhere', () => {
    const more = defineJobs({ ...jobs, extra: job<{ n: number }>() })
    expectTypeOf<InputOf<(typeof more)['charge']>>().toEqualTypeOf<{ cents: number }>()
    expectTypeOf<InputOf<(typeof more)['extra']>>().toEqualTypeOf<{ n: number }>()
  })

  test('takes only what job() made', () => {
    // @ts-expect-error options alone would have no types
    defineJobs({ a: { attempts: 3 } })
    // @ts-expect-error a schema is not yet a job
    defineJobs({ a: z.object({}) })
  })
})
