// The open transaction of a user locks a row: only the group that needs the row waits.
import type { Client } from 'pg'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { AddOptions, Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import type { JobRecord } from '../../../src/job/job.js'
import { due } from '../../../src/job/lifecycle.js'
import { Driver, LEASE, ask, renewal } from '../../../src/conformance/driver.js'
import {
  cancel,
  complete,
  fail,
  insert,
  note,
  put,
  remove,
  retry,
  failAndRetry,
  update,
} from '../../../src/conformance/changes.js'
import type { JobOptions } from '../../../src/conformance/changes.js'
import { uuidv7 } from 'uuidv7'
import type { Group, Receipt, Verdict } from '../../../src/store/store.js'
import { observed } from '../../observed-store.js'
import { closing, collect, event, gate, mailbox, newQueue, newWorker } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'
import { connected, run } from './server/clients.js'

let url = ''
let schema = ''
let store: Store
let d: Driver
/** The user's connection, with a transaction open. */
let theirs: Client
/** Names of this test's own. */
let queue = ''

beforeAll(async () => {
  url = await sharedServer()
  schema = newSchema()
})

beforeEach(async () => {
  store = closing(postgres(url, { schema }))
  queue = newSchema()
  d = new Driver(store, `${queue}-writer`)
  await d.running('warm', { queue }) // the schema and a lane are there
  theirs = await connected(url)
  await theirs.query('begin')
})

const verdict = (each: Verdict | undefined): string => (each?.ok === true ? 'landed' : String(each?.why))
const job = (name: string, options: JobOptions = {}): Group => [insert(d.id(), name, { queue, ...options })]

/**
 * Sends a group that needs what is held between others that do not, with an ask and a renewal: it alone is busy. Then
 * the transaction ends, and `then` is what becomes of the group.
 */
async function onlyBusy(group: () => Group, end: 'commit' | 'rollback', then: string): Promise<Receipt> {
  const running = await d.running('renewed', { queue })
  const ending = await d.running('ending', { queue })
  const receipt = await d.commit({
    groups: [job('neighbour'), group(), complete(ending), job('neighbour')],
    renewals: [renewal(running)],
    asks: [ask(2, { queues: [queue], names: ['neighbour'] })],
  })
  expect(receipt.groups.map(verdict)).toEqual(['landed', 'busy', 'landed', 'landed'])
  expect(receipt.renewals.map(verdict)).toEqual(['landed'])
  expect(receipt.asks[0]).toHaveLength(2)
  // Alone as well, and for other callers.
  const elsewhere = new Driver(closing(postgres(url, { schema })), `${queue}-elsewhere`)
  expect((await elsewhere.commit({ groups: [group()] })).groups.map(verdict)).toEqual(['busy'])
  await theirs.query(end)
  expect(verdict(await d.send(group()))).toBe(then)
  return receipt
}

describe('a job’s row', () => {
  const locks = ['for update', 'for no key update', 'for share']

  const hold = (id: string, how = 'for update'): Promise<unknown> =>
    theirs.query(`select 1 from ${schema}.job where id = $1 ${how}`, [id])

  test.each(locks)('locked %s: its completion is busy, and succeeds afterwards', async (how) => {
    const held = await d.running('held', { queue })
    await hold(held.id, how)
    await onlyBusy(() => complete(held, { result: 7 }), 'rollback', 'landed')
    expect(await d.job(held)).toMatchObject({ state: 'completed', result: '7' })
  })

  const changes: readonly (readonly [string, (held: JobRecord) => Group])[] = [
    ['a failure', fail],
    ['a note', (held) => note(held, { progress: 5, logs: ['half'] })],
    ['a cancellation', cancel],
    [
      'a completion with a successor',
      (held) => complete(held, { also: job('next').flatMap((each) => (each.kind === 'insert' ? [each] : [])) }),
    ],
  ]

  test.each(changes)('locked: %s is busy, and succeeds afterwards', async (_what, change) => {
    const held = await d.running('held', { queue })
    await hold(held.id)
    const group = change(held)
    await onlyBusy(() => group, 'commit', 'landed')
  })

  test('locked: changing, removing and retrying it is busy', async () => {
    const [added] = await d.land(insert(d.id(), 'held', { queue }))
    const failed = await d.running('failing', { queue, dedup: { key: `${queue} k` } })
    await d.land(fail(failed))
    const over = await d.job(failed)
    await hold(added!.id)
    await hold(over.id)
    const wishes = [update(added!, { priority: 4 }), remove(added!), retry(over)]
    expect((await d.commit({ groups: wishes })).groups.map(verdict)).toEqual(['busy', 'busy', 'busy'])
    await theirs.query('rollback')
    expect((await d.commit({ groups: [wishes[0]!, wishes[2]!] })).groups.map(verdict)).toEqual(['landed', 'landed'])
  })

  test('locked: it is passed over by claims, and claimed afterwards', async () => {
    const jobs = await d.addMany(3, 'held', { queue })
    await hold(jobs[1]!.id)
    const first = await d.claim(3, { queues: [queue], names: ['held'] })
    expect(first.map(({ id }) => id)).toEqual([jobs[0]!.id, jobs[2]!.id])
    await theirs.query('rollback')
    expect((await d.claim(3, { queues: [queue], names: ['held'] })).map(({ id }) => id)).toEqual([jobs[1]!.id])
  })

  test('changed by the transaction: what others want of it is judged when that has ended', async () => {
    const held = await d.running('held', { queue })
    const theirQueue = newQueue({ store, name: queue })
    expect(await theirQueue.cancel(held.id, { tx: theirs })).toBe(true)
    await onlyBusy(() => complete(held), 'commit', 'fence')
    expect(await d.job(held)).toMatchObject({ state: 'cancelled' })
  })

  const crowds: readonly (readonly [string, (held: JobRecord) => Group])[] = [
    ['completions', (held) => complete(held)],
    ['failures', fail],
    ['retries', (held) => failAndRetry(held, 1000)],
    ['notes', (held) => note(held, { progress: 5, logs: ['half'] })],
  ]

  test.each(crowds)('many locked ones in a batch of %s cost the others nothing', async (_what, change) => {
    await d.addMany(40, 'many', { queue })
    await manyBusy(await d.claim(40, { queues: [queue], names: ['many'] }), change)
  })

  test.each([
    ['cancellations', cancel],
    ['removals', remove],
  ])('many locked ones in a batch of %s cost the others nothing', async (_what, change) => {
    await manyBusy(await d.addMany(40, 'many', { queue }), change)
  })

  async function manyBusy(jobs: readonly JobRecord[], change: (job: JobRecord) => Group): Promise<void> {
    const odd = jobs.filter((_, at) => at % 2 === 1)
    await theirs.query(`select 1 from ${schema}.job where id = any ($1) for update`, [odd.map(({ id }) => id)])
    const { groups } = await d.commit({ groups: jobs.map((job) => change(job)) })
    expect(groups.map(verdict)).toEqual(jobs.map((_, at) => (at % 2 === 1 ? 'busy' : 'landed')))
    await theirs.query('commit')
    const again = await d.commit({ groups: odd.map((job) => change(job)) })
    expect(again.groups.map(verdict)).toEqual(odd.map(() => 'landed'))
  }
})

describe('a lease', () => {
  test('of a locked row is busy, not lost, and is renewed afterwards', async () => {
    const [held, free] = [await d.running('held', { queue }), await d.running('free', { queue })]
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [held.id])
    const { renewals } = await d.commit({ renewals: [renewal(held, LEASE, true), renewal(free, 2 * LEASE, true)] })
    expect(renewals.map(verdict)).toEqual(['busy', 'landed'])
    expect(await d.job(held)).toMatchObject({ state: 'active', leaseUntil: held.leaseUntil })
    await theirs.query('commit')
    expect(verdict(await d.renew(held, 3 * LEASE, true))).toBe('landed')
    expect((await d.job(held)).leaseUntil).toBeGreaterThan(held.leaseUntil!)
  })

  test('of a handler whose job a transaction cancels is given up without waiting', async () => {
    const held = await d.running('held', { queue })
    await d.land(cancel(held))
    await run(url, `update ${schema}.orphan set until = 1 where id = '${held.id}'`) // a long time ago
    await newQueue({ store, name: queue }).add('held', 1, { tx: theirs })
    expect(verdict(await d.renew(held, 0))).toBe('fence') // it was over, which this batch found itself
  })

  test('of a running job survives a transaction on its row that many renewals meet', async () => {
    const busy = mailbox<string>()
    const observedStore = observed(store, (batch, { renewals }) => {
      for (const [at, each] of renewals.entries()) if (!each.ok && each.why === 'busy') busy.put(batch.renewals[at]!.id)
    })
    const work = newQueue({ store: observedStore, name: queue })
    const [started, go] = [gate(), gate()]
    const worker = newWorker(
      work,
      {
        held: async () => {
          started.open()
          await go.promise
        },
      },
      { lease: '20s', renewEvery: 100, autorun: false },
    )
    const seen = collect(worker, ['lease-lost', 'completed'])
    const errors: unknown[] = []
    worker.on('error', (error) => errors.push((error as { code?: unknown }).code ?? error))
    await worker.run()
    const added = await work.add('held')
    await started.promise
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [added.id])
    for (let n = 0; n < 3; n++) expect(await busy.next()).toBe(added.id)
    await theirs.query('rollback')
    const completed = event(worker, 'completed')
    go.open()
    expect(await completed).toMatchObject({ id: added.id, attempt: 1 })
    expect(seen).toEqual(['completed'])
    expect(errors.filter((code) => code !== 'EVENT_LOOP_BLOCKED')).toEqual([]) // a busy machine renews late
  })
})

describe('a dedup key', () => {
  const dedup = (): { dedup: { key: string } } => ({ dedup: { key: JSON.stringify([queue, 'k']) } })
  /** Their add of the same key. */
  const take = (options: AddOptions = {}): Promise<unknown> =>
    newQueue({ store, name: queue }).add('theirs', 1, { dedup: { key: 'k' }, ...options, tx: theirs })

  test('that an open transaction takes is busy, and free if that rolls back', async () => {
    await take()
    const group = job('held', dedup())
    await onlyBusy(() => group, 'rollback', 'landed')
  })

  test('that an open transaction takes is busy, and taken if that commits', async () => {
    await take()
    const group = job('held', dedup())
    await onlyBusy(() => group, 'commit', 'duplicate')
  })

  test('whose row is locked: the end of its job is busy, and frees it afterwards', async () => {
    const held = await d.running('held', { queue, ...dedup() })
    await theirs.query(`select 1 from ${schema}.key where key = $1 for update`, [dedup().dedup.key])
    await onlyBusy(() => complete(held), 'rollback', 'landed')
    expect(verdict(await d.send(job('held', dedup())))).toBe('landed')
  })

  test('whose row is locked: the ends of many others are not', async () => {
    const keys = ['k', 'l', 'm'].map((key) => JSON.stringify([queue, key]))
    await d.commit({ groups: keys.map((key) => job('held', { dedup: { key } })) })
    const jobs = await d.claim(3, { queues: [queue], names: ['held'] })
    await theirs.query(`select 1 from ${schema}.key where key = $1 for update`, [keys[1]])
    const ended = await d.commit({ groups: jobs.map((each) => complete(each)) })
    expect(ended.groups.map(verdict)).toEqual(['landed', 'busy', 'landed'])
    const added = await d.commit({ groups: keys.map((key) => job('next', { dedup: { key } })) })
    expect(added.groups.map(verdict)).toEqual(['landed', 'duplicate', 'landed'])
  })

  test('that an open transaction takes: the others of a batch are added', async () => {
    await take()
    const groups = ['k', 'l', 'k', 'l'].map((key) => job('many', { dedup: { key: JSON.stringify([queue, key]) } }))
    expect((await d.commit({ groups })).groups.map(verdict)).toEqual(['busy', 'landed', 'busy', 'duplicate'])
    await theirs.query('rollback')
    expect((await d.commit({ groups })).groups.map(verdict)).toEqual(['landed', 'duplicate', 'duplicate', 'duplicate'])
  })

  test('of a job whose id is taken is left to the next of the batch', async () => {
    const [standing] = await d.land(job('standing'))
    const same = { queue, ...dedup() }
    const receipt = await d.commit({
      groups: [[insert(standing!.id, 'many', same)], job('many', same), job('many', same)],
    })
    expect(receipt.groups).toMatchObject([
      { ok: false, why: 'duplicate', id: standing!.id },
      { ok: true },
      { ok: false, why: 'duplicate', id: receipt.groups[1]!.ok && receipt.groups[1]!.inserted[0]!.id },
    ])
  })

  test('that an open transaction frees is held by its job until that commits', async () => {
    const [held] = await d.land(job('held', dedup()))
    await newQueue({ store, name: queue }).cancel(held!.id, { tx: theirs })
    expect(verdict(await d.send(job('next', dedup())))).toBe('duplicate')
    await theirs.query('commit')
    expect(verdict(await d.send(job('next', dedup())))).toBe('landed')
  })

  test('of a job that is to be started over is busy', async () => {
    const failed = await d.running('held', { queue, ...dedup() })
    await d.land(fail(failed))
    const over = await d.job(failed)
    await take()
    await onlyBusy(() => retry(over), 'commit', 'duplicate')
  })

  test('whose window was over before an open transaction wrote anything is free for others', async () => {
    await d.land(job('first', { dedup: { ...dedup().dedup, window: 60_000 } }))
    await run(url, `update ${schema}.key set until = 1 where key = '${dedup().dedup.key}'`) // a long time ago
    await newQueue({ store, name: queue }).add('theirs', 1, { tx: theirs })
    expect(verdict((await d.commit({ groups: [job('second', dedup())] })).groups[0])).toBe('landed')
  })
})

describe('an id', () => {
  test.each(['order 7', 'a minted one', 'a UUIDv7 of the user’s'])(
    '%s that an open transaction adds is busy',
    async (which) => {
      const id = which === 'order 7' ? `${queue} 7` : uuidv7()
      const work = newQueue({ store, name: queue })
      if (which === 'a minted one')
        await theirs.query(`select ${schema}.add_job($1, 'theirs', '1', $2)`, [queue, { id }])
      else await work.add('theirs', 1, { id, tx: theirs })
      const group = [insert(id, 'held', { queue })]
      await onlyBusy(() => group, 'rollback', 'landed')
    },
  )

  test('that an open transaction adds is taken if that commits', async () => {
    const id = `${queue} 8`
    await newQueue({ store, name: queue }).add('theirs', 1, { id, tx: theirs })
    const group = [insert(id, 'held', { queue })]
    await onlyBusy(() => group, 'commit', 'duplicate')
  })

  test('that an open transaction removes is taken until that commits', async () => {
    const [held] = await d.land(job('held'))
    await newQueue({ store, name: queue }).remove(held!.id, { tx: theirs })
    expect(verdict((await d.commit({ groups: [[insert(held!.id, 'again', { queue })]] })).groups[0])).toBe('duplicate')
    await theirs.query('commit')
    expect(verdict(await d.send([insert(held!.id, 'again', { queue })]))).toBe('landed')
  })
})

describe('a parent', () => {
  test('is counted down by all children but the one that is locked, in one batch', async () => {
    const children: JobRecord[] = []
    for (let n = 0; n < 10; n++) children.push(await d.running('child', { queue }))
    const [parent] = await d.land(insert(d.id(), 'parent', { queue, after: children }))
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [children[4]!.id])
    const ends = children.map((child, n) => complete(child, { result: n }))
    const { groups } = await d.commit({ groups: [...ends, complete({ ...children[0]!, fence: 99 })] })
    expect(groups.map(verdict)).toEqual([...children.map((_, n) => (n === 4 ? 'busy' : 'landed')), 'fence'])
    expect(await d.job(parent!)).toMatchObject({ state: 'waiting-children', pending: 1 })
    expect((await d.edges(parent!)).map(({ result }) => result)).toEqual(
      children.map((_, n) => (n === 4 ? undefined : String(n))),
    )
    await theirs.query('rollback')
    await d.land(ends[4]!)
    expect(await d.job(parent!)).toMatchObject({ state: 'waiting', pending: 0, fence: parent!.fence + 1 })
  })

  test('that is locked makes the end of its last child busy, and is released once afterwards', async () => {
    const child = await d.running('child', { queue })
    const [parent] = await d.land(insert(d.id(), 'parent', { queue, after: [child.id] }))
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [parent!.id])
    await onlyBusy(() => complete(child), 'commit', 'landed')
    expect(await d.job(parent!)).toMatchObject({ state: 'waiting', pending: 0, fence: parent!.fence + 1 })
  })

  test('that is locked makes the failure of its child busy, and is broken once afterwards', async () => {
    const child = await d.running('child', { queue })
    const [parent] = await d.land(insert(d.id(), 'parent', { queue, after: [child.id] }))
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [parent!.id])
    await onlyBusy(() => fail(child), 'commit', 'landed')
    expect(await d.job(parent!)).toMatchObject({ state: 'waiting-children', fence: parent!.fence + 1 })
    expect((await d.job(parent!)).brokenAt).toBeDefined()
  })

  test('that an open transaction is adding keeps its child from ending behind its back', async () => {
    const child = await d.running('child', { queue })
    const added = (await newQueue({ store, name: queue }).add('parent', 1, {
      after: child.id,
      tx: theirs,
    })) as {
      id: string
    }
    await onlyBusy(() => complete(child), 'commit', 'landed')
    expect(await d.job(added.id)).toMatchObject({ state: 'waiting', pending: 0 })
  })

  test('cannot be added while its child is locked, and sees afterwards how that has ended', async () => {
    const child = await d.running('child', { queue })
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [child.id])
    const group = [insert(d.id(), 'parent', { queue, after: [child.id] })]
    await onlyBusy(() => group, 'commit', 'landed')
  })
})

describe('a queue', () => {
  test('that an open transaction is making holds back jobs of that queue alone', async () => {
    const fresh = newSchema()
    await theirs.query(`select ${schema}.add_job($1, 'theirs')`, [fresh])
    const group = [insert(d.id(), 'ours', { queue: fresh })]
    await onlyBusy(() => group, 'commit', 'landed')
  })

  test('with a bound that an open transaction adds to is claimed from all the same', async () => {
    await d.limit({ backlog: 100, concurrency: 50 }, queue)
    await d.addMany(2, 'ready', { queue })
    await newQueue({ store, name: queue }).add('theirs', 1, { tx: theirs })
    const claimed = await d.claim(2, { queues: [queue], names: ['ready'] })
    expect(claimed).toHaveLength(2)
    const { groups } = await d.commit({ groups: [...claimed.map((each) => complete(each)), job('another')] })
    expect(groups.map(verdict)).toEqual(['landed', 'landed', 'busy'])
    await theirs.query('commit')
    expect(verdict(await d.send(job('another')))).toBe('landed')
  })

  test('that an open transaction pauses is claimed from until that commits, and its setting is busy', async () => {
    const work = newQueue({ store, name: queue })
    await work.pause(undefined, { tx: theirs })
    await d.addMany(2, 'ready', { queue })
    expect(await d.claim(1, { queues: [queue], names: ['ready'] })).toHaveLength(1)
    const cell = put(`pause:${queue}`, { all: false, names: [] }, 0)
    await onlyBusy(() => [cell], 'commit', 'version')
    expect(await d.claim(1, { queues: [queue], names: ['ready'] })).toEqual([])
  })
})

test('a queue’s add waits for the transaction by itself, and others do not wait with it', async () => {
  const work = newQueue({ store, name: queue })
  await work.add('chore', 0, { id: `${queue} 9`, tx: theirs })
  let landed = false
  const same = work.add('chore', 1, { id: `${queue} 9` }).finally(() => (landed = true))
  await Promise.all(Array.from({ length: 20 }, (_, n) => work.add('chore', n)))
  expect(landed).toBe(false)
  await theirs.query('commit')
  expect(await same).toMatchObject({ duplicate: true, data: 0 })
})

test('inside a transaction, what another holds is refused at once by name, and does not spoil it', async () => {
  const work = newQueue({ store, name: queue })
  const other = await connected(url)
  await other.query('begin')
  await work.add('chore', 0, { id: `${queue} 10`, tx: other })
  await expect(work.add('chore', 1, { id: `${queue} 10`, tx: theirs })).rejects.toMatchObject({
    code: 'STORE_BUSY',
  })
  await work.add('chore', 2, { id: `${queue} 11`, tx: theirs })
  await other.query('rollback')
  await theirs.query('commit')
  expect((await work.list({ name: 'chore' })).jobs.map(({ id }) => id)).toEqual([`${queue} 11`])
})

describe('a due job that a user transaction holds', () => {
  test('holds up neither what is due beside it nor expired leases, and is no outage', { timeout: 60_000 }, async () => {
    let refused = 0
    const tried = gate()
    let held = ''
    const observedStore = observed(store, (batch, { groups }) => {
      for (const [at, each] of groups.entries()) {
        const of = batch.groups[at]![0]
        if (each.ok || each.why !== 'busy' || of === undefined || !('id' in of) || of.id !== held) continue
        refused++
        tried.open()
      }
    })
    const work = newQueue({ store: observedStore, name: queue })
    held = (await work.add('held', undefined, { delay: 1 })).id
    await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [held])
    const worker = newWorker(work, () => {}, { autorun: false })
    const errors = collect(worker, ['error'])
    const ran = new Set<string>()
    const whichRan = mailbox<string>()
    worker.on('completed', ({ id, name }) => {
      ran.add(id)
      whichRan.put(name)
    })
    await worker.run()
    await tried.promise
    // A worker that died, and a job that becomes due, after the first look.
    const dead = ask(1, { worker: 'dead', queues: [queue], names: ['stalled'], lease: 50 })
    const { asks } = await d.commit({ groups: [job('stalled', { attempts: 3 })], asks: [dead] })
    expect(asks[0]).toHaveLength(1)
    await work.add('later', undefined, { delay: 20 })
    const names = [await whichRan.next(), await whichRan.next()]
    expect(names.toSorted()).toEqual(['later', 'stalled'])
    // One try each pass, not one again and again within a pass that waits for it.
    expect(refused).toBeLessThan(20)
    expect(errors).toEqual([])
    await theirs.query('rollback')
    expect(await whichRan.next()).toBe('held')
    expect(ran.has(held)).toBe(true)
  })
})

describe('a waiting job that a user transaction holds', () => {
  const claims = {
    'one lane': { handlers: ['held'], limit: undefined },
    'several lanes': { handlers: ['held', 'other'], limit: undefined },
    'a queue with a limit': { handlers: ['held'], limit: { concurrency: 5 } },
  } as const

  test.each(Object.keys(claims) as (keyof typeof claims)[])(
    'is claimed soon after it is released, though no notice comes: %s',
    { timeout: 60_000 },
    async (kind) => {
      const { handlers, limit } = claims[kind]
      if (limit !== undefined) await d.limit(limit, queue)
      for (const name of handlers) await d.land(complete(await d.running(name, { queue }))) // the lanes exist
      const held = await d.add('held', { queue })
      await theirs.query(`select 1 from ${schema}.job where id = $1 for update`, [held.id])
      const asked = gate()
      const observedStore = observed(store, (_, { asks }) => {
        if (asks.length > 0) asked.open()
      })
      const worker = newWorker(newQueue({ store: observedStore, name: queue }), () => {}, {
        pollEvery: '1h',
        autorun: false,
      })
      const completed = event(worker, 'completed')
      await worker.run()
      await asked.promise
      await theirs.query('rollback')
      expect(await completed).toMatchObject({ id: held.id })
    },
  )
})

describe('a change that comes too late', () => {
  test('is refused by its fence, and keeps no claim from the job', async () => {
    const [delayed] = [await d.add('work', { queue, run: { in: 1 } })]
    const { jobs } = await d.due([queue])
    const moved = due(
      jobs.find(({ id }) => id === delayed.id)!,
      Date.now() + 60_000,
    )
    await d.land(moved)
    await theirs.query('rollback')
    const late = postgres(url, { schema })
    closing(late)
    const refused = await late.transact!(async (tx) => {
      const { groups } = await late.commit({ writer: '', seq: 0, groups: [moved], renewals: [], asks: [] }, tx)
      // The transaction of the late one is still open.
      const { asks } = await d.commit({ asks: [ask(1, { queues: [queue], names: ['work'] })] })
      expect(asks[0]?.map(({ id }) => id)).toEqual([delayed.id])
      return groups[0]
    })
    expect(verdict(refused)).toBe('fence')
  })
})
