// Handlers in phases are typed by what was declared.
import { describe, expectTypeOf, test } from 'vitest'
import { Queue, Worker, defineJobs, job, middleware, phases } from 'millrace'
import type { Job, JobPhase, JobPhases, PhaseStatus, PhasesHandlerOf, PhasesOf, Store } from 'millrace'
import { z } from 'zod'

interface Results {
  readonly download: { path: string }
  readonly process: { frames: number }
  readonly upload: string
}

const jobs = defineJobs({
  video: job<{ url: string }, string, string, readonly string[], Results>({
    phases: ['download', 'process', 'upload'],
  }),
  image: job({
    input: z.object({ path: z.string(), size: z.number().default(1) }),
    output: z.object({ bytes: z.number() }),
    phases: ['load', 'shrink'],
  }),
  plain: job<{ x: 1 }, number>(),
})
declare const store: Store
const queue = new Queue('typed', { store, jobs })

describe('phases', () => {
  test('each knows its job, and what the others return', () => {
    new Worker(queue, {
      video: phases({
        download: async (each, ctx) => {
          expectTypeOf(each.data).toEqualTypeOf<{ url: string }>()
          expectTypeOf(each.name).toEqualTypeOf<'video'>()
          expectTypeOf(ctx.progress).parameters.toEqualTypeOf<[percent: number]>()
          void ctx.add('plain', { x: 1 })
          // @ts-expect-error it takes 1
          void ctx.add('plain', { x: 2 })
          return { path: each.data.url }
        },
        process: (_job, ctx) => {
          expectTypeOf(ctx.phaseResult('download')).toEqualTypeOf<{ path: string } | undefined>()
          expectTypeOf(ctx.phaseResults().upload).toEqualTypeOf<string | undefined>()
          // @ts-expect-error there is no such phase
          ctx.phaseResult('downlaod')
          // @ts-expect-error it is a number from 0 to 100
          void ctx.progress('half')
          return { frames: 1 }
        },
        upload: {
          run: async (_job, ctx) => String(ctx.phaseResult('process')?.frames),
          attempts: 3,
          backoff: { type: 'fixed', delay: '1s' },
          timeout: '1m',
        },
      }),
      image: phases({
        load: (each) => {
          expectTypeOf(each.data).toEqualTypeOf<{ path: string; size: number }>()
        },
        shrink: (_job, ctx) => {
          expectTypeOf(ctx.phaseResult('load')).toBeUnknown()
          return { bytes: 1 }
        },
      }),
      // Not declared: any names, in the order of their keys.
      plain: phases({ one: (each) => each.data.x, two: (_job, ctx) => ctx.phaseResult('anything') }),
    })
  })

  test('settings of the name stand beside them', () => {
    new Worker(queue, {
      plain: { run: phases({ one: () => 1 }), lease: '1m' },
      image: { run: phases({ load: () => {}, shrink: () => ({ bytes: 1 }) }), timeout: '1h' },
    })
  })

  test('a phase that is missing, too many or misspelt does not compile', () => {
    const [download, process, upload] = [() => ({ path: '' }), () => ({ frames: 1 }), () => '']
    // @ts-expect-error there is no upload
    new Worker(queue, { video: phases({ download, process }) })
    // @ts-expect-error there is one more
    new Worker(queue, { video: phases({ download, process, upload, more: upload }) })
    // @ts-expect-error it was declared with phases
    new Worker(queue, { video: upload })
    // @ts-expect-error it returns no path
    new Worker(queue, { video: phases({ download: upload, process, upload }) })
    // @ts-expect-error the last phase returns the result of the job
    new Worker(queue, { image: phases({ load: () => 1, shrink: () => ({ bytes: '1' }) }) })
    // @ts-expect-error a phase has no lease
    new Worker(queue, { plain: phases({ one: { run: () => 1, lease: '1m' } }) })
  })

  test('handlers can be written apart from their worker', () => {
    const video: PhasesHandlerOf<typeof jobs, 'video'> = phases({
      download: (each) => ({ path: each.data.url }),
      process: () => ({ frames: 1 }),
      upload: (_job, ctx) => ctx.phaseResult('download')?.path ?? '',
    })
    new Worker(queue, { video })
    const user = middleware<{ user: string }>((_job, _ctx, next) => next({ user: 'ada' }))
    const wrapped: PhasesHandlerOf<typeof jobs, 'video', { user: string }> = phases({
      download: (_job, ctx) => ({ path: ctx.user }),
      process: () => ({ frames: 1 }),
      upload: (_job, ctx) => ctx.user,
    })
    new Worker(queue, { video: wrapped }, { middleware: [user] })
    // @ts-expect-error no middleware adds a user
    new Worker(queue, { video: wrapped })
  })

  test('what was declared can be asked for, and a job shows its phases', () => {
    expectTypeOf<PhasesOf<(typeof jobs)['video']>>().toEqualTypeOf<Results>()
    expectTypeOf<PhasesOf<(typeof jobs)['plain']>>().toBeUnknown()
    // @ts-expect-error that is not what its results are of
    job<void, string, string, readonly string[], Results>({ phases: ['download', 'process', 'upstairs'] })
  })

  test('a job shows its phases with their results, on every handle', async () => {
    const added = await queue.add('video', { url: '' })
    expectTypeOf(added.phases).toEqualTypeOf<JobPhases<Results>>()
    expectTypeOf(added.progress).toEqualTypeOf<number>()
    expectTypeOf(added.phases.download).toEqualTypeOf<JobPhase<{ path: string }>>()
    expectTypeOf(added.phases.process.result).toEqualTypeOf<{ frames: number } | undefined>()
    // @ts-expect-error there is no such phase
    void added.phases.downlaod
    const found = await queue.get('id')
    if (found?.name === 'video') expectTypeOf(found.phases.upload.result).toEqualTypeOf<string | undefined>()
    if (found?.name === 'image') {
      expectTypeOf(found.phases.load.result).toEqualTypeOf<unknown>()
      expectTypeOf(found.phases.shrink.result).toEqualTypeOf<{ bytes: number } | undefined>()
    }
    if (found?.name === 'plain') expectTypeOf(found.phases).toEqualTypeOf<Readonly<Record<string, JobPhase>>>()
    for await (const seen of added.observe()) expectTypeOf(seen.phases).toEqualTypeOf<JobPhases<Results>>()
    const all: Readonly<Record<string, JobPhase>> = added.phases
    for (const phase of Object.values<JobPhase>(all)) expectTypeOf(phase.progress).toEqualTypeOf<number>()
    const anyJob: Job = added
    expectTypeOf(anyJob.progress).toEqualTypeOf<unknown>()
    expectTypeOf(anyJob.phases).toEqualTypeOf<Readonly<Record<string, JobPhase>>>()
    new Worker(queue, {
      video: phases({
        download: (each) => {
          expectTypeOf(each.phases.process.status).toEqualTypeOf<PhaseStatus>()
          return { path: '' }
        },
        process: () => ({ frames: 1 }),
        upload: () => '',
      }),
    })
  })
})
