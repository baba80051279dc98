// Jobs declared in every way there is, and a store that exists in types alone: type tests are checked, never run.
import { type } from 'arktype'
import { Queue, defineJobs, job } from 'millrace'
import type { Store } from 'millrace'
import * as v from 'valibot'
import { z } from 'zod'

export declare const store: Store

export const jobs = defineJobs({
  // zod: `cc` has a default, `at` becomes a Date, and the result's `copies` may be left out by the handler.
  email: job({
    input: z.object({ to: z.string(), cc: z.array(z.string()).default([]), at: z.iso.datetime().transform(toDate) }),
    output: z.object({ messageId: z.string(), copies: z.number().default(0) }),
    attempts: 5,
  }),
  // valibot: `size` goes from text to a number.
  resize: job({
    input: v.object({ path: v.string(), size: v.pipe(v.string(), v.transform(Number)) }),
    output: v.object({ bytes: v.optional(v.number(), 0) }),
  }),
  // arktype: `page` has a default.
  crawl: job({ input: type({ url: 'string', page: 'number = 1' }), output: type({ links: 'string[]' }) }),
  // Plain types.
  charge: job<{ cents: number }, { receipt: string }>({ backoff: { type: 'fixed', delay: '1s' } }),
  // Data that may be left out.
  sweep: job<undefined, number>(),
  report: job<{ since: number } | undefined, void>({ version: 2 }),
  ping: job({ input: z.string().optional() }),
  // Without types.
  loose: job(),
})

export const queue = new Queue('main', { store, jobs })
export const untyped = new Queue('main', { store })

function toDate(text: string): Date {
  return new Date(text)
}
