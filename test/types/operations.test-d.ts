// What `queue.operate` and `queue.plan` take and answer.
import { expectTypeOf, test } from 'vitest'
import { Queue, defineJobs, job, typed } from 'millrace'
import type { JobFilter, OperateOptions, Operation, OperationPage, OperationPlan } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'

const jobs = defineJobs({
  mail: job({ input: typed<{ to: string }>() }),
  film: job({ input: typed<{ minutes: number }>() }),
})
const queue = new Queue('work', { store: memory(), jobs })

test('an operation is what operate answers, and a plan where nothing is to be done', () => {
  expectTypeOf(queue.operate({ do: 'retry', where: { state: 'failed' } })).resolves.toEqualTypeOf<Operation>()
  expectTypeOf(queue.operate({ do: 'retry', all: true, dryRun: true })).resolves.toEqualTypeOf<OperationPlan>()
  expectTypeOf(queue.plan({ do: 'cancel', all: true })).resolves.toEqualTypeOf<OperationPlan>()
  expectTypeOf(queue.operation('a')).resolves.toEqualTypeOf<Operation | undefined>()
  expectTypeOf(queue.operations({ limit: 5 })).resolves.toEqualTypeOf<OperationPage>()
})

test('filters name the jobs that were declared, and new data is that of the job', () => {
  void queue.operate({ do: 'update', where: { name: 'mail' }, changes: { data: { to: 'ann' }, priority: 2 } })
  // @ts-expect-error there is no such job
  void queue.operate({ do: 'retry', where: { name: 'mial' } })
  // @ts-expect-error data of another job
  void queue.operate({ do: 'update', where: { name: 'mail' }, changes: { data: { minutes: 2 } } })
  // @ts-expect-error an update changes something
  void queue.operate({ do: 'update', where: { name: 'mail' } })
  // @ts-expect-error only cancelling and removing cascade
  void queue.operate({ do: 'retry', where: { name: 'mail' }, cascade: true })
  // @ts-expect-error there is no such action
  void queue.operate({ do: 'mend', all: true })
  // @ts-expect-error all of them, or a filter
  void queue.operate({ do: 'retry', all: false })
  // @ts-expect-error one of them
  void queue.operate({ do: 'retry' })
  // @ts-expect-error not both
  void queue.plan({ do: 'retry', all: true, where: { state: 'failed' } })
  const where: JobFilter<'mail' | 'film'> = { state: 'failed' }
  void queue.operate({ do: 'retry', where })
})

test('options can be made apart from the call, and name a transaction where the store has any', () => {
  const options: OperateOptions<typeof jobs> = { do: 'cancel', all: true, cascade: true, rate: { max: 5, per: '1s' } }
  expectTypeOf(options.reason).toEqualTypeOf<string | undefined>()
  // @ts-expect-error memory has no transactions
  void queue.operate({ do: 'cancel', all: true, tx: {} })
  const transacting = new Queue('work', { store: sqlite('jobs.db') })
  void transacting.transaction((tx) => transacting.operate({ do: 'cancel', all: true, tx }))
})

test('the event of its end says what was done, for whom', () => {
  void queue.on('operation-ended', (event) => {
    expectTypeOf(event.do).toEqualTypeOf<'cancel' | 'retry' | 'promote' | 'remove' | 'update'>()
    expectTypeOf(event.state).toEqualTypeOf<'completed' | 'cancelled'>()
    expectTypeOf(event.done).toEqualTypeOf<number>()
    expectTypeOf(event.refused).toEqualTypeOf<Readonly<Record<string, number>>>()
    expectTypeOf(event.by).toEqualTypeOf<string | undefined>()
    expectTypeOf(event.name).toEqualTypeOf<string>()
  })
})
