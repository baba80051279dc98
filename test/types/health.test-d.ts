// Health, workers and counts over time are typed by the names of the queue.
import { expectTypeOf, test } from 'vitest'
import { defineJobs, job, Queue } from 'millrace'
import type { Hold, NameHealth, QueueHealth, Series, SeriesMark, Totals, WorkerInfo } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({ mail: job<{ to: string }>(), index: job() })
const queue = new Queue('work', { store: memory(), jobs, series: { keep: '7d' } })

test('health has an entry for each declared name', async () => {
  const health = await queue.health()
  expectTypeOf(health).toEqualTypeOf<QueueHealth<'mail' | 'index'>>()
  expectTypeOf(health.names.mail).toEqualTypeOf<NameHealth>()
  expectTypeOf(health.oldestWaiting).toEqualTypeOf<number | undefined>()
  expectTypeOf(health.holds).toEqualTypeOf<readonly Hold<'mail' | 'index'>[]>()
  // @ts-expect-error the name is not declared
  void health.names.other
})

test('workers, totals and counts over time are plain data', async () => {
  expectTypeOf(await queue.workers()).toEqualTypeOf<readonly WorkerInfo[]>()
  expectTypeOf(await queue.totals()).toEqualTypeOf<Totals>()
  expectTypeOf(await queue.series({ step: 'hour', by: 'name', from: new Date() })).toEqualTypeOf<Series>()
  expectTypeOf(await queue.mark('deploy')).toEqualTypeOf<SeriesMark>()
  // @ts-expect-error there is no such step
  void queue.series({ step: 'week' })
  // @ts-expect-error a queue keeps rows, or it does not
  void new Queue('work', { store: memory(), series: true })
})
