// The short ways into the database come to the same as the long one, and as the memory store: each batch is sent to all three.
import { Client } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { ask, Driver } from '../../../src/conformance/driver.js'
import {
  complete,
  fail,
  handBack,
  insert,
  note,
  promote,
  put,
  snooze,
  failAndRetry,
  update,
} from '../../../src/conformance/changes.js'
import { Listener } from '../../../src/conformance/listener.js'
import type { JobRecord } from '../../../src/job/job.js'
import type { Ask, Group, Receipt } from '../../../src/store/store.js'
import { inOrder, scene } from './three-stores.js'
import { rows } from './server/clients.js'

const places = ({ groups }: Receipt): readonly number[] =>
  groups.flatMap((verdict) => (verdict.ok ? verdict.inserted.map(({ ord }) => ord) : []))

test('adds of one and of many, with and without data, first and last in, by priority', async () => {
  const { jobs, send, short, claim } = await scene()
  await send({ groups: jobs(1, 'a', { data: { one: 'job' } }) })
  await send({ groups: jobs(1, 'a', { lifo: true }) })
  expect(short.ways()).toEqual(['add_one', 'add_one'])
  await send({ groups: jobs(20, 'a', (n) => (n % 3 === 0 ? {} : { data: n % 3 === 1 ? null : `\u001F${n}"\\` })) })
  await send({ groups: jobs(20, 'a') })
  await send({ groups: jobs(20, 'a', (n) => ({ data: n, lifo: true })) })
  await send({ groups: jobs(20, 'a', (n) => ({ data: n, priority: -3, attempts: Infinity })) })
  expect(short.ways()).toEqual(['add_many', 'add_many', 'add_many', 'add_many'])
  expect(await claim(200)).toHaveLength(82)
  expect(short.ways()).toEqual(['fast_claim'])
})

test('adds of more than one block of places', async () => {
  const { jobs, send, short, claim, sendTwice } = await scene()
  await send({ groups: jobs(1, 'a') })
  for (const lifo of [false, true]) {
    const groups = jobs(2_500, 'a', (n) => ({ data: n, lifo }))
    const receipt = await send({ groups })
    const stands = await short.store.get(groups.map(([change]) => (change as { job: { id: string } }).job.id))
    expect(places(receipt)).toEqual(stands.map((job) => job!.ord))
    expect(new Set(places(receipt)).size).toBe(2_500)
  }
  await sendTwice({ groups: jobs(1_100, 'a') }, 'add_many')
  await claim(100)
  expect(short.ways()).toContain('fast_claim')
})

test('adds of two stores at the same moment', async () => {
  const { short, other } = await scene()
  const stores = [short.store, other()]
  await stores[1]!.open()
  await new Driver(short.store, 'first').land(insert('first', 'a')) // makes the lane, for which others would have to wait
  const adding = stores.map(async (store, side) => {
    const d = new Driver(store, `side ${side}`)
    for (let round = 0; round < 5; round++) {
      const ids = Array.from({ length: 300 }, () => store.runtime!.id())
      const receipt = await d.commit({ groups: ids.map((id) => [insert(id, 'a', { lifo: round % 2 === 1 })]) })
      const stands = await store.get(ids)
      expect(places(receipt)).toEqual(stands.map((job) => job!.ord))
    }
  })
  await Promise.all(adding)
  expect(short.ways()).toContain('add_many')
  const claimed = await new Driver(short.store, 'claims').claim(4_000)
  expect(claimed).toHaveLength(3_001)
  expect(claimed.map(({ ord }) => ord)).toEqual(claimed.map(({ ord }) => ord).toSorted((a, b) => a - b))
  expect(await short.store.tally()).toMatchObject([{ names: { a: { active: 3_001 } }, lifetime: { added: 3_001 } }])
})

test('batches whose answers were lost', async () => {
  const { jobs, sendTwice, short, send, claim } = await scene()
  await sendTwice({ groups: jobs(1, 'a', { data: 1 }) }, 'add_one')
  expect(short.ways()).toEqual(['add_one']) // the replay is answered before anything is decided
  await sendTwice({ groups: jobs(10, 'a', (n) => (n === 3 ? {} : { data: n })) }, 'add_many')
  await sendTwice({ groups: jobs(10, 'b', { lifo: true }) }, 'add_many')
  await sendTwice({ asks: [ask(3, { ahead: 4 })] }, 'fast_claim')
  expect(short.ways().slice(-2)).toEqual(['fast_claim', 'commit'])
  await send({ groups: jobs(5, 'c') })
  await claim(50)
})

test('a claim that found nothing, was sent again, and comes late after all', async () => {
  const { jobs, short, other, send } = await scene()
  await send({ groups: jobs(1, 'b') }) // the lane is there
  const batch = { writer: 'late', seq: 1, groups: [], renewals: [], asks: [ask(3, { names: ['a'] })] }
  short.lose('fast_claim')
  await expect(short.store.commit(batch)).rejects.toThrow('lost')
  expect((await short.store.commit(batch)).asks).toEqual([[]])
  await send({ groups: jobs(1, 'a') })
  expect((await other().commit(batch)).asks).toEqual([[]])
  expect((await short.store.commit({ ...batch, seq: 2 })).asks[0]).toHaveLength(1)
})

test('claims from one lane and from several, in the order of their priorities, some of them ahead', async () => {
  const { jobs, send, claim, short } = await scene()
  for (const name of ['a', 'b', 'c']) {
    await send({ groups: jobs(30, name, { priority: name.charCodeAt(0) % 2 }) })
    await send({ groups: jobs(10, name, { lifo: true, data: name }) })
  }
  short.ways()
  expect(await claim(4, { names: ['b'], ahead: 3 })).toHaveLength(7)
  expect(await claim(0, { names: ['b'], ahead: 3 })).toHaveLength(3)
  expect(await claim(0)).toEqual([])
  expect(await claim(2, { names: ['none'] })).toEqual([])
  expect(await claim(2, { queues: ['nowhere'] })).toEqual([])
  expect(await claim(10, { ahead: 20 })).toHaveLength(30)
  expect(await claim(3, { names: ['a', 'c'], ahead: 2, worker: 'another' })).toHaveLength(5)
  expect(await claim(100, { ahead: 100 })).toHaveLength(75)
  expect(new Set(short.ways())).toEqual(new Set(['fast_claim']))
})

test('claims of jobs that were tried before, among others', async () => {
  const { jobs, send, claim, short, advance } = await scene()
  await send({ groups: [...jobs(6, 'a', (n) => ({ data: n })), ...jobs(6, 'b')] })
  const running = await claim(8)
  const ends = [
    (job: JobRecord) => failAndRetry(job, 1_000),
    complete,
    handBack,
    (job: JobRecord) => snooze(job, 1_000),
  ]
  await send({ groups: running.map((job, n) => ends[n % 4]!(job)) })
  await advance(500)
  const delayed = (await short.store.get(running.map(({ id }) => id))).filter((job) => job!.state === 'delayed')
  await send({ groups: delayed.map((job) => promote(job!)) })
  const { groups } = await send({ groups: jobs(3, 'a') })
  const [changed] = groups.flatMap((verdict) => (verdict.ok ? verdict.inserted : []))
  await send({ groups: [update(changed!, { priority: -1, data: '"changed"' })] })
  short.ways()
  const again = await claim(5, { ahead: 20 })
  expect(short.ways()).toEqual(['fast_claim'])
  expect(again).toHaveLength(13)
  expect(again.filter(({ attempt, errors }) => attempt === 2 && errors.length === 1)).toHaveLength(2)
  expect(again[0]).toMatchObject({ id: changed!.id, data: '"changed"' })
})

test('claims that begin where the last one ended', { timeout: 60_000 }, async () => {
  const { jobs, send, claim, short, other } = await scene()
  await send({ groups: jobs(1_000, 'a', { priority: 5 }) })
  await send({ groups: jobs(800, 'a', { priority: 5 }) })
  expect(await claim(1_200)).toHaveLength(1_200)
  expect(await claim(100, { ahead: 50 })).toHaveLength(150)
  expect(await claim(1, { names: ['a'] })).toHaveLength(1)
  // Behind the back of this process, which does not watch; its claims find it all the same, once they have reached the end.
  const below = [insert(other().runtime!.id(), 'a', { priority: 1 })]
  await new Driver(other(), 'other').commit({ groups: [below] })
  const rest = await new Driver(short.store, 'last').claim(500)
  expect(rest).toHaveLength(450)
  expect(rest.map(({ id }) => id)).toContain(below[0]!.job.id)
  expect(new Set(rest.map(({ id }) => id)).size).toBe(450)
  expect(short.ways()).not.toContain('commit')
})

test('jobs with one attempt are not leased ahead: the long way sees to that, for a while', async () => {
  const { jobs, send, claim, short } = await scene()
  await send({ groups: [...jobs(5, 'a'), ...jobs(2, 'a', { attempts: 1 }), ...jobs(40, 'a'), ...jobs(5, 'b')] })
  short.ways()
  expect(await claim(3)).toHaveLength(3)
  expect(short.ways()).toEqual(['fast_claim'])
  const some = await claim(1, { ahead: 10 })
  expect(some.filter(({ attempts }) => attempts === 1)).toEqual([])
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
  for (let n = 0; n < 20; n++) await claim(1)
  expect(short.ways()).toEqual(Array.from({ length: 20 }, () => 'commit'))
  await claim(1)
  expect(short.ways()).toEqual(['fast_claim'])
})

test.each([
  ['a pause', { all: false, names: ['a'] }, ['add_many', 'commit']],
  ['a pause of all', { all: true, names: [] }, ['add_many', 'commit']],
  ['a pause that says nothing', { all: false, names: [] }, ['add_many']],
  ['a hold that is over', { all: false, names: [], holds: { '': { until: 1, at: 0 } } }, ['add_many']],
])('%s that is set and taken away again', async (_, value, adds) => {
  const { jobs, send, claim, short } = await scene()
  await send({ groups: jobs(20, 'a') })
  await send({ groups: jobs(20, 'b') })
  await send({ groups: [[put('pause:mill', value, 0)]] })
  short.ways()
  await claim(3, { ahead: 4 })
  await claim(2, { names: ['a'] })
  expect(short.ways()).toEqual(['fast_claim', 'fast_claim']) // it passes over what is paused
  await send({ groups: jobs(5, 'a') })
  expect(short.ways()).toEqual(adds)
  await send({ groups: [[put('pause:mill', undefined, 1)]] })
  await claim(60)
  expect(short.ways()).toEqual(['commit', 'fast_claim'])
})

test('claims heed a hold by the long way, and adds do not: the short way is taken again when it is over', async () => {
  const { jobs, send, claim, short } = await scene()
  await send({ groups: jobs(20, 'a') })
  const holds = { na: { until: 4_000_000_000_000, at: 0 } }
  await send({ groups: [[put('pause:mill', { all: false, names: [], holds }, 0)]] })
  short.ways()
  expect(await claim(3)).toEqual([])
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
  await send({ groups: jobs(5, 'a') })
  expect(short.ways()).toEqual(['add_many'])
})

test.each([
  ['a limit', 'limit:mill', { concurrency: 3, by: 'queue' }],
  ['a limit of a name', 'limit:mill', { names: { b: { concurrency: 1 } }, by: 'queue' }],
  ['a rate', 'limit:mill', { rate: { max: 4, per: 60_000 }, by: 'queue' }],
  ['a limit of groups', 'limit:mill', { group: { concurrency: 1 }, by: 'queue' }],
])('%s that is set and taken away again', async (_, key, value) => {
  const { jobs, send, claim, short } = await scene()
  await send({ groups: jobs(20, 'a') })
  await send({ groups: jobs(20, 'b') })
  await claim(2)
  await send({ groups: [[put(key, value, 0)]] })
  short.ways()
  await claim(1, { ahead: 4 })
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
  await claim(2)
  await send({ groups: jobs(5, 'a') })
  await send({ groups: jobs(5, 'a') })
  expect(short.ways()).toEqual(['commit', 'add_many', 'commit', 'commit'])
  await send({ groups: [[put(key, undefined, 1)]] })
  for (let n = 0; n < 19; n++) {
    await claim(1)
    await send({ groups: jobs(2, 'b') })
  }
  expect(new Set(short.ways())).toEqual(new Set(['commit']))
  await claim(1)
  await send({ groups: jobs(2, 'b') })
  expect(short.ways()).toEqual(['fast_claim', 'add_many'])
})

test.each([
  ['a bound', { backlog: 45, by: 'queue' }],
  ['a weight', { groups: { g: { weight: 2 } }, by: 'queue' }],
])('%s does not concern claims', async (_, value) => {
  const { jobs, send, claim, short } = await scene()
  await send({ groups: jobs(20, 'a') })
  await send({ groups: [[put('limit:mill', value, 0)]] })
  short.ways()
  await claim(2, { ahead: 4 })
  await send({ groups: jobs(5, 'a') })
  expect(short.ways()).toEqual(['fast_claim', 'add_many', 'commit'])
})

test('adds of jobs with groups, one and many, and again', async () => {
  const { jobs, send, claim, short, sendTwice } = await scene()
  const group = (n: number): string => `group ${n % 7}`
  await send({ groups: jobs(1, 'a', { group: 'ž', data: 'one' }) })
  const receipt = await send({ groups: jobs(1_500, 'a', (n) => ({ group: group(n), data: n })) })
  expect(places(receipt)).toEqual(Array.from({ length: 1_500 }, (_, n) => 65_536 * Math.floor(n / 7)))
  await send({ groups: jobs(10, 'b', (n) => ({ group: group(n), attempts: 1 })) })
  await claim(700)
  await send({ groups: jobs(20, 'a', (n) => (n % 2 === 0 ? { group: group(n) } : { group: `late ${n}` })) })
  await send({ groups: jobs(20, 'a', (n) => ({ group: group(n), priority: 3 })) })
  expect(new Set(short.ways())).toEqual(new Set(['add_shared', 'fast_claim']))
  await sendTwice({ groups: jobs(30, 'a', (n) => ({ group: group(n) })) }, 'add_shared')
  expect(short.ways()).toEqual(['add_shared'])
  await claim(2_000)
})

test('claims of jobs with groups, from one lane and from several', async () => {
  const { jobs, send, claim, short, sendTwice } = await scene()
  const group = (n: number): string => ['x', 'y', 'z'][n % 3]!
  await send({ groups: jobs(40, 'a', (n) => ({ group: group(n >> 2), data: n })) })
  expect(await claim(4, { ahead: 3 })).toHaveLength(7)
  await send({ groups: jobs(40, 'b', (n) => ({ group: group(n), priority: n % 2, attempts: 1 })) })
  await send({ groups: jobs(5, 'a', { group: 'late' }) })
  short.ways()
  expect(await claim(10)).toHaveLength(10)
  expect(await claim(3, { names: ['a'], ahead: 4 })).toHaveLength(7)
  expect(short.ways()).toEqual(['fast_claim', 'fast_claim'])
  await sendTwice({ asks: [ask(5)] }, 'fast_claim')
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
  expect(await claim(99)).toHaveLength(56)
  expect(short.ways()).toEqual(['fast_claim'])
})

test('jobs with groups and without, and groups of several queues, are merged the long way, as long as there are both', async () => {
  const { jobs, send, claim, short } = await scene()
  await send({ groups: [...jobs(6, 'a', { group: 'x' }), ...jobs(3, 'a'), ...jobs(4, 'b', { group: 'y' })] })
  short.ways()
  expect(await claim(5, { ahead: 1 })).toHaveLength(6)
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
  for (let n = 0; n < 20; n++) await claim(n === 0 ? 9 : 0)
  await send({ groups: jobs(6, 'a', { group: 'x' }) })
  short.ways()
  expect(await claim(3)).toHaveLength(3) // the other lanes are there, and empty
  expect(short.ways()).toEqual(['fast_claim'])
  await send({ groups: jobs(6, 'a', { queue: 'other', group: 'x' }) })
  expect(await claim(2, { queues: ['other'] })).toHaveLength(2)
  short.ways()
  expect(await claim(5, { queues: ['mill', 'other'] })).toHaveLength(5)
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
})

test('flows: children are claimed the short way with their parents, and ends of many in one batch count each parent down', async () => {
  const { send, short, claim } = await scene()
  const flow = (name: string, count: number, after: readonly string[] = []): Group => {
    const parent = short.store.runtime!.id()
    const ids = Array.from({ length: count }, () => short.store.runtime!.id())
    const children = ids.map((id, n) => insert(id, 'child', { parent, data: `${name} ${n}` }))
    return [...children, insert(parent, name, { after: [...ids, ...after], queue: 'parents' })]
  }
  const nodes = (group: Group): readonly string[] => group.map((each) => (each as { job: { id: string } }).job.id)
  const [one, two, both] = [flow('one', 12), flow('two', 9), flow('both', 5)]
  await send({ groups: [one, two, both] })
  // One that waits for children of others as well, and one in a group, whose turn is asked for by itself.
  const more = insert(short.store.runtime!.id(), 'more', { after: [nodes(one)[0]!, nodes(two)[0]!], queue: 'parents' })
  const shared = insert(short.store.runtime!.id(), 'more', {
    after: nodes(both).slice(0, 2),
    group: 'g',
    queue: 'parents',
  })
  await send({ groups: [[more], [shared]] })
  short.ways()
  const claimed = await claim(40, { names: ['child'] })
  expect(short.ways()).toEqual(['fast_claim'])
  expect(claimed.map(({ parentId }) => parentId)).toEqual([
    ...Array.from({ length: 12 }, () => nodes(one).at(-1)),
    ...Array.from({ length: 9 }, () => nodes(two).at(-1)),
    ...Array.from({ length: 5 }, () => nodes(both).at(-1)),
  ])
  const ends = claimed.map((job, n) => complete(job, n % 3 === 0 ? {} : { result: n }))
  const stale = complete({ ...claimed[25]!, fence: 7 })
  const { groups } = await send({ groups: [...ends.slice(1, 25), stale] })
  expect(groups.map(({ ok }) => ok)).toEqual([...Array.from({ length: 24 }, () => true), false])
  await send({ groups: [ends[0]!, ends[25]!] })
  const parents = [one, two, both].map((each) => nodes(each).at(-1)!)
  const { jobs } = await short.store.details({ jobs: parents })
  expect(jobs.map(({ edges }) => edges.map(({ state, result }) => [state, result]))).toEqual(
    [
      [0, 12],
      [12, 21],
      [21, 26],
    ].map(([from, to]) =>
      claimed.slice(from, to).map((_, at) => ['ended', (from! + at) % 3 === 0 ? undefined : String(from! + at)]),
    ),
  )
  const freed = await claim(10, { queues: ['parents'] })
  expect(freed.map(({ name }) => name).toSorted()).toEqual(['both', 'more', 'more', 'one', 'two'])
})

test('what is predicted comes to what is decided over the working set, whatever lease holders do', async () => {
  const { send, short, claim, advance, jobs } = await scene()
  let state = 7
  const random = (below: number): number => {
    state = (state * 48_271) % 2_147_483_647
    return state % below
  }
  const newId = (): string => short.store.runtime!.id()
  const flow = (): Group => {
    const ids = Array.from({ length: 1 + random(4) }, newId)
    return [...ids.map((id) => insert(id, 'child')), insert(newId(), 'parent', { after: ids, queue: 'parents' })]
  }
  const ends: readonly ((job: JobRecord) => Group)[] = [
    (job) => complete(job, { result: random(9) }),
    (job) =>
      complete(job, {
        continuation: insert(newId(), 'next', { chain: { id: job.chainId, index: job.chainIndex + 1 } }),
      }),
    (job) => failAndRetry(job, random(3)),
    (job) => fail(job),
    (job) => snooze(job, random(5)),
    handBack,
    (job) => note(job, { progress: random(100), memo: 'null', logs: ['line'] }),
    (job) => [...note(job, { progress: 1 }), ...complete(job)],
    (job) => [...complete(job), ...complete({ ...job, fence: 99 })],
  ]
  let held: readonly JobRecord[] = []
  for (let round = 0; round < 40; round++) {
    const ended = held.filter(() => random(3) > 0)
    const groups = ended.map((job) => ends[random(ends.length)]!(job))
    if (random(2) === 0) groups.push(flow(), ...jobs(2, 'a', { lifo: random(2) === 0 }))
    const renewed = held.filter((job) => !ended.includes(job))
    const renewals = renewed.map(({ id, fence }) => ({ id, fence, lease: 60_000, started: random(2) === 0 }))
    if (groups.length + renewals.length > 0) await send({ groups, renewals })
    await advance(random(4))
    const { items } = await short.store.find({ states: ['delayed'], limit: 20 })
    if (items.length > 0) await send({ groups: items.map((job) => promote(job)) })
    held = [...renewed, ...(await claim(6, { queues: ['mill', 'parents'] }))]
  }
  const ways = short.ways()
  expect(ways.filter((way) => way === 'fast_commit').length).toBeGreaterThan(3)
})

test('names and queues of any letters, and several of them', async () => {
  const { jobs, send, short } = await scene()
  const words = ['"', '\\', ',', '{}', "it's", '{"a","b"}', 'NULL', 'null', '\\"', ' ', 'ü😀', '%s', '$1', 'a b']
  for (const queue of words.slice(0, 7)) {
    for (const name of words) await send({ groups: jobs(2, name, { queue, data: name }) })
  }
  expect(new Set(short.ways())).toEqual(new Set(['add_many']))
  for (const name of words) {
    const { asks } = await send({ asks: [ask(4, { queues: words, names: [name], ahead: 2 })] })
    expect(asks[0]!.map((job) => [job.name, job.data])).toEqual(asks[0]!.map(() => [name, JSON.stringify(name)]))
    expect(asks[0]).toHaveLength(6)
  }
  for (const queue of words.slice(0, 7)) {
    const { asks } = await send({ asks: [ask(3, { queues: [queue, 'none', queue] })] })
    expect(asks[0]!.every((job) => job.queue === queue)).toBe(true)
  }
  expect(new Set(short.ways())).toEqual(new Set(['fast_claim']))
})

test('one handler for all names beside some for their own, each with its lease', async () => {
  const { jobs, send, short } = await scene()
  for (const name of ['a', 'b', 'c']) await send({ groups: jobs(6, name) })
  short.ways()
  const handles = [
    { name: 'b', lease: 1_000 },
    { name: undefined, lease: 5_000 },
    { name: 'c', lease: 9_000 },
    { name: 'b', lease: 2_000 },
  ]
  const { asks, now } = await send({ asks: [ask(6, { handles, ahead: 12 })] })
  const leases = new Set(asks[0]!.map(({ name, leaseUntil }) => `${name} ${leaseUntil! - now}`))
  expect(leases).toEqual(new Set(['a 5000', 'b 1000', 'c 9000']))
  expect(short.ways()).toEqual(['fast_claim'])
})

test('versions that a handler knows, and those that it does not', async () => {
  const { jobs, send, short } = await scene()
  for (const version of [1, 2, 3]) await send({ groups: jobs(4, 'a', { version }) })
  await send({ groups: jobs(2, 'b', { version: 7 }) })
  short.ways()
  const claim = async (...handles: Ask['handles']): Promise<readonly (readonly [string, number])[]> => {
    const { asks } = await send({ asks: [ask(2, { handles, ahead: 2 })] })
    return asks[0]!.map(({ name, version }) => [name, version])
  }
  const four = (version: number): readonly (readonly [string, number])[] =>
    Array.from({ length: 4 }, () => ['a', version])
  expect(await claim({ name: 'a', lease: 1_000, versions: [2, 9] })).toEqual(four(2))
  expect(await claim({ name: 'a', lease: 1_000, versions: [] })).toEqual([])
  expect(await claim({ name: 'a', lease: 1_000, versions: [3] }, { name: 'c', lease: 1_000 })).toEqual(four(3))
  const all = { name: undefined, lease: 1_000 }
  expect(await claim({ name: 'a', lease: 1_000, versions: [5] }, all)).toEqual([
    ['b', 7],
    ['b', 7],
  ])
  expect(new Set(short.ways())).toEqual(new Set(['fast_claim']))
  const twice = [1, 5].map((version) => ({ name: 'a', lease: 1_000, versions: [version] }))
  expect(await claim(...twice)).toEqual(four(1))
  expect(short.ways()).toEqual(['commit'])
})

test('while a subscriber exists the fast paths are used as well, and publish what the general path and memory do', async () => {
  const { jobs, send, claim, short, stores, advance } = await scene()
  await send({ groups: jobs(2, 'a') })
  expect(short.ways()).toEqual(['add_many'])
  const listeners = stores.map((store) => new Listener(store, { events: true }))
  await send({ groups: jobs(1, 'a', { data: 'one' }) })
  expect(short.ways()).toEqual(['add_one', 'add_many']) // with other events that path costs more
  await send({ groups: jobs(3, 'a') })
  await send({ groups: jobs(1, 'b', { priority: -1 }) })
  await send({ groups: jobs(4, 'b', (n) => ({ group: `group ${n % 2}`, queue: 'other' })) })
  expect(short.ways()).toEqual(['add_many', 'add_many', 'add_shared'])
  await advance(5)
  const some = await claim(3)
  await advance(5)
  const rest = await claim(10)
  const others = await claim(10, { queues: ['other'] })
  expect([some.length, rest.length, others.length]).toEqual([3, 4, 4])
  expect(short.ways()).toEqual(['fast_claim', 'fast_claim', 'fast_claim'])
  // Some events have more fields: results, attempts, and the chain they belong to.
  await send({ groups: some.map((job, n) => complete(job, { result: n === 1 ? undefined : `"${n}" ` })) })
  const next = insert(short.store.runtime!.id(), 'c', { chain: { id: rest[0]!.id, index: 1 } })
  await send({
    groups: [complete(rest[0]!, { continuation: next }), ...rest.slice(1).map((job) => failAndRetry(job, 10))],
  })
  await send({ groups: others.map((job) => complete(job)) })
  await advance(10)
  const { items } = await stores[0]!.find({ states: ['delayed'], limit: 10 })
  await send({ groups: items.map((job) => promote(job)) })
  short.ways()
  const again = await claim(10)
  expect(again.map(({ attempt, chainId, id }) => [attempt, chainId === id])).toEqual([
    [1, false],
    ...items.map(() => [2, true]),
  ])
  expect(short.ways()).toEqual(['fast_claim'])
  await send({ groups: again.map((job) => complete(job, { result: job.attempt })) })

  const counts = listeners.map(({ all }) => all.length)
  for (const listener of listeners)
    await listener.until(() => listener.all.length >= Math.max(...counts), 'all events are received')
  const [quick, slow, reference] = listeners.map(({ all }) => inOrder(all))
  expect(slow).toEqual(reference)
  expect(quick).toEqual(reference)
  for (const listener of listeners) listener.stop()
})

test('a claim passes over what others hold, and reads on behind it', async () => {
  const { jobs, send, short, url, schema } = await scene()
  for (const name of ['a', 'b']) await send({ groups: jobs(20, name, (n) => ({ data: n })) })
  short.ways()
  const theirs = new Client(url)
  await theirs.connect()
  onTestFinished(() => theirs.end())
  await theirs.query('begin')
  const { rows: held } = await theirs.query<{ id: string }>(
    `select id from ${schema}.job order by ord limit 15 for update`,
  )
  const d = new Driver(short.store, 'claims')
  for (const [names, count] of [
    [['a'], 5],
    [['a', 'b'], 15],
  ] as const) {
    const claimed = await d.claim(count, { names })
    expect(claimed).toHaveLength(count)
    expect(claimed.filter(({ id }) => held.some((each) => each.id === id))).toEqual([])
  }
  await theirs.query('rollback')
  expect(await d.claim(100)).toHaveLength(20)
  expect(short.ways()).toEqual(['fast_claim', 'fast_claim', 'fast_claim'])
  expect(await rows(url, `select count(*)::int as n from ${schema}.job where state = 'active'`)).toEqual([{ n: 40 }])
})
