// What a job did and when, the jobs around it, and when it expires.
import { expectTypeOf, test } from 'vitest'
import { defineJobs, job, Queue } from 'millrace'
import type { AttemptInfo, JobGraph, JobStep, Timeline } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({ mail: job<{ to: string }>() })
const queue = new Queue('work', { store: memory(), jobs })

test('attempts, steps and timelines are plain data', async () => {
  const mail = await queue.add('mail', { to: 'ann' }, { expires: '30s' })
  expectTypeOf(await mail.history({ limit: 10, after: 1 })).toEqualTypeOf<readonly AttemptInfo[]>()
  expectTypeOf(await mail.steps()).toEqualTypeOf<readonly JobStep[]>()
  expectTypeOf(await mail.timeline()).toEqualTypeOf<Timeline>()
  expectTypeOf(mail.attempts).toEqualTypeOf<number>()
  // @ts-expect-error a page begins after a fence
  void mail.history({ after: 'first' })
})

test('an entry of a timeline is known by its kind', async () => {
  const mail = await queue.add('mail', { to: 'ann' })
  for (const entry of (await mail.timeline()).entries) {
    if (entry.kind === 'log') expectTypeOf(entry.line).toEqualTypeOf<string>()
    if (entry.kind === 'step') expectTypeOf(entry.until).toEqualTypeOf<number>()
    if (entry.kind === 'attempt') expectTypeOf(entry.outcome).toEqualTypeOf<AttemptInfo['outcome']>()
    // @ts-expect-error a moment has no end
    if (entry.kind === 'added') void entry.until
  }
})

test('a graph is of any queue, by id or by its job', async () => {
  const mail = await queue.add('mail', { to: 'ann' }, { expires: new Date(2_000_000_000_000) })
  expectTypeOf(await queue.graph(mail.id)).toEqualTypeOf<JobGraph>()
  expectTypeOf(await mail.graph()).toEqualTypeOf<JobGraph>()
  // @ts-expect-error a job that expires does so after a time, or at a date
  void queue.add('mail', { to: 'ann' }, { expires: true })
})
