// The jobs of the tests of the test helpers.
import { defineJobs, job, typed } from 'millrace'
import { z } from 'zod'

export const jobs = defineJobs({
  'send-email': job<{ to: string; tags?: string[]; from?: { name: string } }, { messageId: string }>({ attempts: 3 }),
  resize: job({ input: z.object({ width: z.number(), unit: z.string().default('px') }), output: typed<string>() }),
  sweep: job<undefined, number>(),
  draft: job({ input: typed<{ text: string }>(), output: typed<{ url: string }>(), next: ['publish'] }),
  publish: job<{ text: string }, { url: string }>(),
})
