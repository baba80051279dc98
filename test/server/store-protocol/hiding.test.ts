// What a token that may only read is not shown by the store protocol: what read routes hide, in every call and event.
import { describe, expect, it } from 'vitest'
import { Queue, Worker, phases } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { parseRedact } from '../../../src/server/redact.js'
import { refuseHiddenSearch } from '../../../src/server/store-protocol/hiding.js'
import type { DetailsQuery, Notice } from '../../../src/store/store.js'
import { closing, gate } from '../../setup.js'
import { protocolWorld } from './world.js'
import type { TokenName } from './world.js'

const webhook = 'https://example.com/hook?key=hush'
const parts: DetailsQuery['parts'] = ['edges', 'outcomes', 'dependents', 'logs', 'steps', 'related']

interface Secrets {
  readonly remote: (name: TokenName) => Store
  readonly ids: readonly string[]
  /** The cursor of the first event, and the job whose end is the last one. */
  readonly from: string
  readonly last: string
}

/** A store with a secret in every place where a job has values, texts and URLs. */
async function secrets(): Promise<Secrets> {
  const { store, remote } = await protocolWorld()
  const cursors: string[] = []
  store.watch({ events: true }, ({ events }) => cursors.push(...events.map(({ cursor }) => cursor)))
  const queue = closing(new Queue('mail', { store, logger: false }))
  const waits = await queue.add('plain', { token: 'hush', to: 'ann' }, { delay: '1h' })
  await queue.signal(waits.id, 'go', { token: 'hush' })
  await queue.schedule('nightly', { name: 'plain', every: '1h', data: { token: 'hush' }, options: { webhook } })
  closing(
    new Worker(
      queue,
      {
        async plain(_job, ctx) {
          await ctx.progress({ token: 'hush', part: 1 })
          await ctx.log('password=hush and more')
          await ctx.step('once', async () => ({ secret: 'hush', ok: true }))
          return { password: 'hush', ok: true }
        },
        failing() {
          throw new Error('token=hush', { cause: new Error('password: hush') })
        },
        phased: phases({
          one: async () => ({ token: 'hush', kept: 7 }),
          two: async () => {
            throw new Error('token=hush')
          },
        }),
        async after() {},
      },
      { logger: false },
    ),
  )
  const plain = await queue.add('plain', { token: 'hush', to: 'ann' }, { webhook })
  const failing = await queue.add('failing', null, { attempts: 1 })
  const phased = await queue.add('phased', null, { attempts: 1 })
  const good = await queue.add('after', null, { after: plain })
  const bad = await queue.add('after', null, { after: [{ job: failing, onFailure: 'ignore' }] })
  await Promise.allSettled([plain, failing, phased, good, bad].map((job) => job.result()))
  const last = await queue.add('after')
  await last.result()
  const ids = [waits, plain, failing, phased, good, bad].map(({ id }) => id)
  return { remote, ids, from: cursors[0]!, last: last.id }
}

/** The answers of all calls that read, and the events since the first one. */
async function readAll(store: Store, { ids, from, last }: Secrets): Promise<Readonly<Record<string, string>>> {
  const events: Notice['events'][number][] = []
  const seen = gate()
  const stop = store.watch({ events: true, from }, (notice) => {
    events.push(...notice.events)
    if (events.some(({ id, type }) => id === last && type === 'completed')) seen.open()
  })
  await seen.promise
  stop()
  const answers = {
    get: await store.get(ids),
    find: await store.find({}),
    'find in a queue': await store.find({ queue: 'mail', order: 'newest' }),
    schedules: await store.find({ queue: 'mail', kind: 'schedule' }),
    signals: await store.find({ queue: 'mail', kind: 'signal' }),
    details: await store.details({ jobs: ids, parts }),
    events,
  }
  return Object.fromEntries(Object.entries(answers).map(([call, answer]) => [call, JSON.stringify(answer)]))
}

describe('secrets in jobs', () => {
  it('are hidden from a token that may only read, in every call and in events', async () => {
    const world = await secrets()
    for (const name of ['reader', 'overseer'] as const) {
      for (const [call, answer] of Object.entries(await readAll(world.remote(name), world))) {
        expect(answer, `${name}: ${call}`).not.toContain('hush')
        expect(answer, `${name}: ${call}`).toContain('•••')
      }
    }
  })

  it('are shown to a token that adds or works on jobs, and to admins', async () => {
    const world = await secrets()
    for (const name of ['worker', 'operator', 'admin'] as const) {
      for (const [call, answer] of Object.entries(await readAll(world.remote(name), world))) {
        expect(answer, `${name}: ${call}`).toContain('hush')
        expect(answer, `${name}: ${call}`).not.toContain('•••')
      }
    }
    const added = await world.remote('producer').get(world.ids)
    expect(added.map((job) => job?.data)).toContain('{"token":"hush","to":"ann"}')
  })

  it('are hidden in what is due: the query of a webhook', async () => {
    const clock = virtualClock()
    const { store, remote } = await protocolWorld(closing(memory({ runtime: clock.runtime })))
    await closing(new Queue('mail', { store, logger: false })).add('send', null, { delay: '1s', webhook })
    await clock.advance('2s')
    const urlOf = async (name: TokenName): Promise<unknown> => {
      const { jobs } = await remote(name).due({ queues: ['mail'], except: [], limit: 10 })
      return jobs.map(({ extras }) => extras?.webhook?.url)
    }
    expect(await urlOf('reader')).toEqual(['https://example.com/hook'])
    expect(await urlOf('worker')).toEqual([webhook])
  })

  it('are hidden in such a way that queues read the rest of a job', async () => {
    const world = await secrets()
    const queue = closing(new Queue('mail', { store: world.remote('reader'), logger: false }))
    const [, plain, failing, phased] = await Promise.all(world.ids.map((id) => queue.get(id)))
    expect(plain).toMatchObject({
      data: { token: '•••', to: 'ann' },
      returned: { password: '•••', ok: true },
      progress: { token: '•••', part: 1 },
      webhook: { url: 'https://example.com/hook' },
    })
    expect((await plain!.logs()).map(({ line }) => line)).toEqual(['password=••• and more'])
    expect(failing!.error).toMatchObject({ message: 'token=•••', cause: { message: 'password: •••' } })
    expect(failing!.errors).toMatchObject([{ attempt: 1, message: 'token=•••' }])
    expect(phased!.phases).toMatchObject({
      one: { status: 'completed', result: { token: '•••', kept: 7 } },
      two: { status: 'failed', error: { message: 'token=•••' } },
    })
    const [schedule] = await queue.schedules()
    expect(schedule).toMatchObject({ key: 'nightly', data: { token: '•••' } })
  })
})

describe('a search by what is hidden', () => {
  it('is refused for a token that may only read, and answered for others', async () => {
    const { remote } = await secrets()
    const search = { queue: 'mail', contains: [['{"data":{"to":"ann"}}'], ['{"data":{"token":"hush"}}']] }
    await expect(remote('reader').find(search)).rejects.toMatchObject({ code: 'FORBIDDEN' })
    await expect(remote('overseer').find({ ...search, count: true })).rejects.toMatchObject({ code: 'FORBIDDEN' })
    expect((await remote('reader').find({ ...search, contains: [['{"data":{"to":"ann"}}']] })).items).not.toEqual([])
    expect((await remote('worker').find(search)).items).not.toEqual([])
  })

  it.each([
    ['{"data":[{"user":{"email":"a"}}]}', true],
    ['{"data":[[{"mail":"a"}]]}', false],
    ['{"data":{"list":[{"name":"a"}]}}', true],
    ['{"data":{"list":[{"to":"a"}]}}', false],
    ['{"result":{"a":{"b":{"pin":1}}}}', true],
    [`{"data":${'['.repeat(100_000)}1${']'.repeat(100_000)}}`, true],
  ])('is refused only for hidden paths: case %#', (document, refused) => {
    const redactor = parseRedact({ keys: /pin/, paths: ['data.*.user', 'data.list.3.name'] })
    const search = (): void => refuseHiddenSearch(redactor, { contains: [[document]] })
    if (refused) expect(search).toThrow(/cannot be searched/)
    else expect(search).not.toThrow()
  })
})
