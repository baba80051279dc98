// A program as a user writes it; `scripts/check-packed.mjs` compiles it against the packed package, and it never runs. The types
// of its exports are inferred, so that a type that cannot be named from outside is an error.
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import {
  FlowProducer,
  Queue,
  UnrecoverableError,
  Worker,
  defineJobs,
  errorCatalogue,
  eventStreamHeaders,
  isMillraceError,
  job,
  middleware,
  phases,
  shutdown,
  storeCounts,
} from 'millrace'
import type { EventOf, FlowJob } from 'millrace'
import { conformanceCases, runConformance } from 'millrace/conformance'
import type { Batch, Change, JobRecord, Notice, Receipt, Store, StoreEvent } from 'millrace/conformance'
import { memory } from 'millrace/memory'
import { migrationSql, postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { prometheus, telemetry } from 'millrace/telemetry'
import { millraceMatchers, rules, runSeeds, simulate, testContext, testQueue, virtualClock } from 'millrace/testing'
import type { MillraceMatchers } from 'millrace/testing'
import type { GivenBy, TakenBy } from 'millrace/types'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import { z } from 'zod'

export const jobs = defineJobs({
  mail: job({
    input: z.object({ to: z.string(), copies: z.number().default(0) }),
    output: z.object({ id: z.string() }),
  }),
  film: job<
    { url: string },
    string,
    string,
    readonly string[],
    { download: { path: string }; encode: { frames: number }; upload: string }
  >({ phases: ['download', 'encode', 'upload'] }),
  draft: job<{ text: string }, void, 'publish'>({ next: ['publish'] }),
  publish: job<{ text: string }, { url: string }, string, ['film', 'mail']>({ after: ['film', 'mail'] }),
})

export const stores = { memory: memory(), sqlite: sqlite('jobs.db'), postgres: postgres('postgres://localhost/app') }
export type Given = GivenBy<typeof stores.sqlite>
export type Taken = TakenBy<typeof stores.postgres>
export const kept = new Queue('kept', { store: stores.memory, jobs, logger: console })
export const filed = new Queue('filed', { store: stores.sqlite, jobs, telemetry: telemetry() })
export const served = new Queue('served', {
  store: stores.postgres,
  jobs,
  webhook: webhooks({ url: 'https://example.com/hook', secret: 'whsec_0000000000000000000000000000000000000000000=' }),
})

export const timed = middleware(async (_job, _context, next) => next({ startedAt: Date.now() }))
export const film = phases({
  download: async (each: { readonly data: unknown }) => ({ path: String(each.data) }),
  encode: async () => ({ frames: 25 }),
  upload: async () => 'https://example.com/film',
})
export const worker = new Worker(
  filed,
  {
    mail: async (each, context) => {
      await context.progress(50)
      if (context.signal.aborted) throw new UnrecoverableError('gone')
      return { id: `${each.data.to} ${each.data.copies}` }
    },
    film: phases({
      download: async ({ data }) => ({ path: data.url }),
      encode: async (_film, context) => ({ frames: context.phaseResult('download')?.path.length ?? 0 }),
      upload: async () => 'https://example.com/film',
    }),
    publish: async (each, context) => {
      await context.step('check', () => each.data.text.length)
      const parts = await context.dependencies()
      return { url: parts[0].status === 'completed' ? parts[0].result : '' }
    },
  },
  { concurrency: 2, middleware: [timed] },
)

export const added = await filed.add('mail', { to: 'ann@example.com' })
export const result = await added.result({ timeout: '1m' })
export const found = await served.get('id')
export const page = await kept.list({ state: 'failed', limit: 10 })
export const next = await kept.list({ state: 'failed', limit: 10, cursor: page.cursor })
export const counts = await filed.counts({ by: 'name' })
export const all = await storeCounts(stores.sqlite)
export const limits = await filed.limit({ rate: { max: 1, per: '1s' }, group: { concurrency: 1 } })
export const schedule = await filed.schedule('nightly', { cron: '0 4 * * *', name: 'mail', data: { to: 'a' } })
export const chain = filed.chain(added)
export const chained = await chain.result()
export const flows = new FlowProducer({ store: stores.sqlite, jobs })
export const flow = await flows.add({
  name: 'publish',
  queueName: 'filed',
  data: { text: 'a' },
  children: [
    { name: 'film', queueName: 'filed', data: { url: 'b' } },
    { name: 'mail', queueName: 'filed', data: { to: 'c' } },
  ],
})
export const explained = await filed.explain(added.id)
export const logs = await added.logs()
export const more = await added.logs({ after: logs.at(-1)?.index })
export const observed = added.observe()
export const { phases: stages, error, errors, webhook, dedup } = added
export const stop = filed.on('completed', (event) => event.result)
export const stopped = worker.on('failed', (event) => event.error.message)
export const completed = await new Promise<EventOf<'completed', typeof jobs>>((resolve) =>
  filed.on('completed', resolve),
)
export const last = (events: EventOf<'failed' | 'phase'>[]) => events.at(-1)
export const delivered = (event: EventOf<'webhook-failed'>) => ({ ...event, seen: true })
export const trees = (tree: FlowJob<typeof jobs>) => [tree, ...(tree.children ?? [])]
export const inTransaction = await filed.transaction(async (tx) => {
  tx.prepare('select 1').get()
  return filed.add('mail', { to: 'b' }, { tx })
})
export const inServer = await served.transaction((tx) => tx.query('select 1'))

/** What a web framework sends. */
export const answer = (): Response => new Response(filed.eventStream(), { headers: eventStreamHeaders })
/** What `node:http` sends. */
export const send = (response: ServerResponse): Promise<void> =>
  pipeline(Readable.fromWeb(filed.eventStream()), response)

export const metrics = prometheus(stores.sqlite)
export const message = verifyWebhook('whsec_0000000000000000000000000000000000000000000=', {}, '')
export const codes = Object.keys(errorCatalogue)
export const caught = (thrown: unknown): boolean => isMillraceError(thrown, 'JOB_FAILED')
export const clock = virtualClock()
export const tested = testQueue(jobs, { handlers: { mail: ({ data }) => ({ id: data.to }) } })
export const mails = tested.added('mail', { to: 'ann@example.com' }, { delay: '1h' })
export const drained = await tested.drain({ advance: '1h' })
export const ran = await tested.runOne(await tested.add('mail', { to: 'ann@example.com' }))
export const context = testContext(jobs, 'mail', { to: 'ann@example.com' })
export const matchers = millraceMatchers
declare global {
  namespace jest {
    interface Matchers<R, T> extends MillraceMatchers<T, R> {}
  }
}
export const simulated = simulate
export const seeds = runSeeds
export const names = rules
export const cases = conformanceCases
export const conform = runConformance

/** A store that someone else writes, around another one. */
export const traced = (
  store: Store,
  saw: (what: Change | JobRecord | StoreEvent) => void,
): Pick<Store, 'commit' | 'watch'> => ({
  commit: async (batch: Batch): Promise<Receipt> => {
    for (const change of batch.groups.flat()) saw(change)
    const receipt = await store.commit(batch)
    for (const job of receipt.asks.flat()) saw(job)
    return receipt
  },
  watch: (options, listener) =>
    store.watch(options, (notice: Notice) => {
      for (const event of notice.events) saw(event)
      listener(notice)
    }),
})
export const migration = migrationSql
await shutdown([worker, filed, stores.sqlite])
