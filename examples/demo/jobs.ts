// examples/demo/jobs.ts: a photo shop. An order consists of thumbnails, then a film made of them, then an email.
import { defineJobs, job } from 'millrace'

export const QUEUE = 'photo-shop'

export const customers = ['ann', 'bob', 'cleo', 'dan']

/** Photos in an order. */
export const PHOTOS = 4

export const jobs = defineJobs({
  thumbnail: job<{ photo: string }, { file: string }>(),
  film: job<{ customer: string }, { file: string }>({ attempts: 5 }),
  email: job<{ to: string }, { messageId: string }>({ attempts: 5, backoff: '1s' }),
})

export type Kind = keyof typeof jobs
export const kinds = Object.keys(jobs) as Kind[]
