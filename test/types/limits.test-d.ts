// What `queue.limit` takes and answers, and the group of a job.
import { expectTypeOf, test } from 'vitest'
import { Queue, defineJobs, job } from 'millrace'
import type { Limits } from 'millrace'
import { memory } from 'millrace/memory'

const queue = new Queue('work', { store: memory(), jobs: defineJobs({ mail: job(), film: job() }) })

test('limits name the jobs that were declared', () => {
  expectTypeOf(queue.limit({ names: { mail: { concurrency: 1 }, film: null } })).resolves.toEqualTypeOf<Limits>()
  // @ts-expect-error there is no such job
  void queue.limit({ names: { mial: { concurrency: 1 } } })
})

test('limits are numbers, or null to lift them', () => {
  void queue.limit({ concurrency: null, rate: { max: 3, per: '1 minute' }, maxBacklog: 5 })
  void queue.limit({ group: { concurrency: 2, onFull: 'drop-oldest' }, groups: { acme: { weight: 2 }, other: null } })
  // @ts-expect-error a number
  void queue.limit({ concurrency: '5' })
  // @ts-expect-error a rate has a stretch of time
  void queue.limit({ rate: { max: 3 } })
  // @ts-expect-error only single groups have weights
  void queue.limit({ group: { weight: 2 } })
  // @ts-expect-error one of two
  void queue.limit({ group: { onFull: 'drop' } })
})

test('what stands has no null in it', () => {
  expectTypeOf<Limits['concurrency']>().toEqualTypeOf<number | undefined>()
  expectTypeOf<Limits['groups'][string]['weight']>().toEqualTypeOf<number | undefined>()
})

test('a job has a group, or none', async () => {
  const added = await queue.add('mail', undefined, { group: 'acme' })
  expectTypeOf(added.group).toEqualTypeOf<string | undefined>()
  // @ts-expect-error a text
  void queue.add('mail', undefined, { group: 7 })
  void queue.list({ group: 'acme' })
})
