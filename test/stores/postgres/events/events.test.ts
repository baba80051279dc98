// Watchers on PostgreSQL receive what they receive in memory, whichever path a batch takes.
import { Client } from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { ask, Driver } from '../../../../src/conformance/driver.js'
import {
  cancel,
  complete,
  fail,
  handBack,
  insert,
  promote,
  put,
  remove,
  retry,
  snooze,
  failAndRetry,
} from '../../../../src/conformance/changes.js'
import { Listener } from '../../../../src/conformance/listener.js'
import type { Change } from '../../../../src/job/change.js'
import type { JobRecord } from '../../../../src/job/job.js'
import { note } from '../../../../src/job/lifecycle.js'
import type { NoteFields } from '../../../../src/job/lifecycle.js'
import type { Group } from '../../../../src/store/store.js'
import type { StoreEvent } from '../../../../src/job/events.js'
import { postgres } from '../../../../src/postgres.js'
import { closing } from '../../../setup.js'
import { inOrder, scene } from '../three-stores.js'
import { newSchema, sharedServer } from '../server/shared.js'

/** Chance from a seed. */
function dice(seed: number): <T>(choices: readonly T[]) => T {
  let state = seed
  return (choices) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return choices[(state >>> 8) % choices.length]!
  }
}

const upTo = (most: number): readonly number[] => Array.from({ length: most + 1 }, (_, n) => n)
const odd = ['"', '\\', "it's", '{"many":', '[', ',', '%s', 'ü😀', 'null', ' ']
const values = [undefined, null, '', false, 0, '\u001C\u001D\u001E\u001F', '{"many":', [], {}, '[', ...odd]

/** What each job went through, in order. */
function byJob(events: readonly StoreEvent[]): Readonly<Record<string, readonly string[]>> {
  const types: Record<string, string[]> = {}
  for (const { id, type } of events) if (type !== 'drained') (types[id] ??= []).push(type)
  return types
}

const seeds = Number(process.env['MILLRACE_SEEDS'] ?? 2)
const from = Number(process.env['MILLRACE_SEED'] ?? 1)
test.each(Array.from({ length: seeds }, (_, n) => from + n))(
  'random batches publish the same everywhere, from seed %i',
  { timeout: 60_000 },
  async (seed) => {
    const { jobs, send, stores, short, advance } = await scene()
    const roll = dice(seed)
    const listeners = stores.map((store) => new Listener(store, { events: true }))
    const queues = ['mill', roll(odd), roll(odd)]
    const names = ['a', 'b', roll(odd)]
    const pauses = new Map<string, number>()
    const json = (value: unknown): string => JSON.stringify(value === undefined ? 'u' : value)

    const logged = (): NoteFields => {
      const what = roll(upTo(6))
      const progress = { progress: json(roll(values)) }
      const about = { about: JSON.stringify({ phase: roll(odd) }) }
      const memo = { memo: JSON.stringify({ of: roll(odd) }) }
      const events = {
        events: upTo(roll([0, 1, 2])).map(() => ({
          type: 'phase' as const,
          about: JSON.stringify({ phase: roll(odd) }),
        })),
      }
      if (what === 0) return progress
      if (what === 1) return { ...progress, ...about }
      if (what === 2) return memo
      if (what === 3) return { ...memo, ...events }
      if (what === 4) return { ...progress, ...memo, ...events, ...about }
      if (what === 5) return { logs: [roll(odd), roll(odd)] }
      return { ...progress, logs: [roll(odd)] }
    }
    const end = (job: JobRecord): Group => {
      const what = roll(upTo(11))
      const result = { result: roll(values) }
      if (what < 4) return complete(job, result)
      if (what < 6) return [note(job, logged()), ...complete(job, result)]
      if (what === 6) return complete({ ...job, fence: job.fence + 7 }, result)
      if (what === 7) return failAndRetry(job, 5)
      if (what === 8) return roll([snooze(job, 5), handBack(job), fail(job)])
      if (what === 9)
        return complete(job, {
          continuation: insert(short.store.runtime!.id(), roll(names), {
            queue: roll(queues),
            chain: { id: job.chainId, index: job.chainIndex + 1 },
          }),
        })
      return [note(job, logged())]
    }

    for (let step = 0; step < 30; step++) {
      await advance(roll([0, 1, 5]))
      const kind = roll(upTo(9))
      const { items } = await stores[2]!.find({ limit: 1_000 })
      const active = items.filter(({ state }) => state === 'active')
      if (kind < 3) {
        const plain = {
          queue: roll(queues),
          attempts: roll([1, 3, 3]),
          version: roll([1, 1, 2]),
          priority: roll([0, 0, 0, 3]),
          lifo: roll([false, false, true]),
        }
        const group = roll([false, false, false, true])
        const count = roll([1, 1, 2, 5, 12])
        await send({
          groups: jobs(count, roll(names), () => (group ? { ...plain, lifo: false, group: roll(['x', 'y']) } : plain)),
        })
      } else if (kind < 6) {
        const worker = roll(['w', ...odd])
        const some = roll([queues, queues, [queues[0]!], [queues[1]!]])
        const handles = roll([
          [{ name: undefined, lease: 30_000 }],
          [{ name: undefined, lease: 30_000 }],
          [{ name: 'a', lease: 30_000 }],
          [
            { name: 'a', lease: 30_000, versions: [1] },
            { name: 'b', lease: 40_000 },
          ],
        ])
        await send({ asks: [ask(roll([1, 3, 20]), { worker, queues: some, handles, ahead: roll([0, 0, 2]) })] })
      } else if (kind < 9) {
        const ends = roll([active, active.slice(0, 3), active.slice(1, 9)]).map(end)
        const also = roll([0, 0, 1, 3])
        const groups: (readonly Change[])[] = [
          ...ends,
          ...(also > 0 ? jobs(also, roll(names), { queue: roll(queues) }) : []),
        ]
        const asks = roll([[], [], [ask(3, { queues })]])
        if (groups.length + asks.length > 0) await send({ groups, asks })
      } else {
        const queue = roll(queues)
        const delayed = items.filter(({ state }) => state === 'delayed').map((job) => promote(job))
        const failed = items.filter(({ state }) => state === 'failed').map((job) => roll([retry, remove])(job))
        const waiting = items
          .filter(({ state }) => state === 'waiting')
          .slice(0, 2)
          .map((job) => roll([cancel, remove])(job))
        const paused = roll([{ all: false, names: ['a'] }, { all: true, names: [] }, undefined, undefined])
        const version = pauses.get(queue) ?? 0
        await send({
          groups: [
            ...delayed,
            ...failed,
            ...waiting,
            ...(paused === undefined && version === 0 ? [] : [[put(`pause:${queue}`, paused, version)]]),
          ],
        })
        if (paused !== undefined || version > 0) pauses.set(queue, paused === undefined ? 0 : version + 1)
      }
      const expected = Math.max(...listeners.map(({ all }) => all.length), listeners[2]!.all.length)
      for (const listener of listeners)
        await listener.until(() => listener.all.length >= expected, 'all events are received')
      const [quick, slow, reference] = listeners.map(({ all }) => all) as [
        readonly StoreEvent[],
        readonly StoreEvent[],
        readonly StoreEvent[],
      ]
      expect(inOrder(slow), `step ${step}`).toEqual(inOrder(reference))
      expect(inOrder(quick), `step ${step}`).toEqual(inOrder(reference))
      expect(byJob(quick)).toEqual(byJob(reference))
      expect(byJob(slow)).toEqual(byJob(reference))
      const cursors = quick.map(({ cursor }) => Number(cursor))
      expect(cursors).toEqual(cursors.map((_, n) => cursors[0]! + n))
    }
    expect(new Set(short.ways())).toContain('fast_claim')
    for (const listener of listeners) listener.stop()
  },
)

test('a queue is not drained while a job waits that may not be leased ahead', async () => {
  const { jobs, send, stores, claim, short } = await scene()
  const listeners = stores.map((store) => new Listener(store, { events: true }))
  await send({ groups: [...jobs(1, 'a'), ...jobs(1, 'a', { attempts: 1 })] })
  short.ways()
  expect(await claim(1, { ahead: 5 })).toHaveLength(1)
  expect(short.ways()).toEqual(['fast_claim', 'commit'])
  expect(await claim(1, { ahead: 5 })).toHaveLength(1)
  for (const listener of listeners) await listener.until(() => listener.all.length >= 5, 'all events are received')
  const [quick, slow, reference] = listeners.map(({ all }) => inOrder(all))
  expect(slow).toEqual(reference)
  expect(quick).toEqual(reference)
  for (const listener of listeners) listener.stop()
})

test.each([
  ['takes as many as there are, by itself', 5, false],
  ['takes as many as there are, with something else', 5, true],
  ['asks for more, by itself', 20, false],
  ['asks for more, with something else', 20, true],
])(
  'a claim that begins where the last one ended publishes that it took the last while others claim: it %s',
  async (_, want, more) => {
    const { jobs, short, url, schema } = await scene()
    const listener = new Listener(short.store, { events: true })
    const d = new Driver(short.store, 'claims')
    await d.commit({ groups: jobs(1_010, 'a') })
    expect(await d.claim(1_000)).toHaveLength(1_000) // from here on there is a cursor
    const theirs = new Client(url)
    await theirs.connect()
    onTestFinished(() => theirs.end())
    await theirs.query('begin')
    const waiting = `select id from ${schema}.job where state = 'waiting' order by ord limit 5`
    await theirs.query(`update ${schema}.job set state = 'active' where id in (${waiting})`)
    const drained = (): number => listener.all.filter(({ type }) => type === 'drained').length
    short.ways()
    const { asks } = await d.commit({ groups: more ? [[put('plain', 1, 0)]] : [], asks: [ask(want)] })
    expect(asks[0]).toHaveLength(5)
    expect(short.ways()).toEqual([more ? 'commit' : 'fast_claim'])
    await listener.received(d)
    expect(drained()).toBe(1)
    await theirs.query('rollback')
    listener.stop()
  },
)

test.each([
  ['by itself', false],
  ['with something else', true],
])('one of two claims that meet publishes that both took the last jobs of a queue: %s', async (_, more) => {
  const { jobs, short, url, schema } = await scene()
  const listener = new Listener(short.store, { events: true })
  const d = new Driver(short.store, 'claims')
  const drained = (): number => listener.all.filter(({ type }) => type === 'drained').length
  const claimed = (): Promise<unknown> => {
    const handles = [{ name: 'b', lease: 30_000 }]
    return d.commit({ groups: more ? [[put(d.id(), 1, 0)]] : [], asks: [ask(5, { handles })] })
  }
  await d.commit({ groups: [...jobs(2, 'a'), ...jobs(2, 'b')] })
  const theirs = new Client(url)
  await theirs.connect()
  onTestFinished(() => theirs.end())
  const now = short.store.runtime!.now()
  await theirs.query('begin')
  // Another worker, of other names, whose claim has looked what waits and is not committed yet.
  await theirs.query(
    `select ${schema}.fast_claim_v1('other', 1, 'other', 'w2', '{mill}', '{limit:mill}', '{a}', '{""}', '{30000}', null, 5, 0, null, ${now})`,
  )
  short.ways()
  await claimed()
  expect(short.ways()).toEqual([more ? 'commit' : 'fast_claim'])
  await theirs.query('commit')
  await listener.received(d)
  expect(drained()).toBe(1)
  expect(listener.all.filter(({ type }) => type === 'active')).toHaveLength(4)

  // A job that another transaction locks is not claimed: it waits.
  await d.commit({ groups: [...jobs(1, 'a'), ...jobs(1, 'b')] })
  await theirs.query('begin')
  await theirs.query(
    `select 1 from ${schema}.job where state = 'waiting' and lane in (select id from ${schema}.lane where name = 'a') for update`,
  )
  await claimed()
  await listener.received(d)
  expect(drained()).toBe(1)
  await theirs.query('rollback')
  listener.stop()
})

test('a claim that begins where the last one ended sees what was placed below since', async () => {
  const { jobs, short, other } = await scene()
  const far = other()
  const listener = new Listener(far, { events: true })
  const d = new Driver(short.store, 'claims')
  await d.commit({ groups: jobs(1_002, 'a', { priority: 5 }) })
  await d.claim(1_000)
  await new Driver(far, 'other').land(insert('below', 'a', { priority: 1 })) // without a notice, because it does not watch
  await d.claim(1)
  short.ways()
  await d.claim(1)
  expect(short.ways()).toEqual(['fast_claim'])
  const theirs = new Driver(far, 'marks')
  await listener.received(theirs)
  expect(listener.all.filter(({ type }) => type === 'drained')).toEqual([])
  expect(await d.claim(2)).toMatchObject([{ id: 'below' }])
  await listener.received(theirs)
  expect(listener.all.filter(({ type }) => type === 'drained')).toHaveLength(1)
  listener.stop()
})

test('jobs that a transaction locks are busy at once, whatever else is in the batch, and publish no event', async () => {
  const { jobs, short, stores, url, schema, advance } = await scene()
  const listener = new Listener(short.store, { events: true })
  const d = new Driver(short.store, 'holder')
  await d.commit({ groups: jobs(24, 'a') })
  const running = await d.claim(24)
  await advance(1)
  const theirs = new Client(url)
  await theirs.connect()
  onTestFinished(() => theirs.end())
  await theirs.query('begin')
  await theirs.query(`select 1 from ${schema}.job where id = any ($1) for update`, [
    running.filter((_, n) => n % 4 === 3).map(({ id }) => id),
  ])
  const logged = (n: number): NoteFields => ({
    progress: `${n}`,
    about: '{"phase":"p"}',
    memo: `{"n":${n}}`,
    events: [{ type: 'phase', about: `{"at":${n}}` }],
  })
  const groups = running.map((job, n): Group => {
    if (n < 4) return [note(job, { progress: '1' })]
    if (n < 8) return complete(job, { result: n })
    if (n < 12) return [note(job, logged(n)), ...complete(job, { result: '' })]
    if (n < 16) return [note(job, logged(n))]
    return n < 20 ? [note(job, { ...logged(n), logs: ['line'] })] : complete(job)
  })
  const before = listener.all.length
  const { groups: verdicts } = await d.commit({ groups: [...groups, ...jobs(2, 'b')] })
  expect(verdicts.map((verdict) => (verdict.ok ? 'ok' : verdict.why))).toEqual([
    ...groups.map((_, n) => (n % 4 === 3 ? 'busy' : 'ok')),
    'ok',
    'ok',
  ])
  await listener.received(d)
  const held = new Set(running.filter((_, n) => n % 4 === 3).map(({ id }) => id))
  expect(listener.all.slice(before).filter(({ id }) => held.has(id))).toEqual([])
  await theirs.query('rollback')
  const again = await d.commit({ groups: groups.filter((_, n) => n % 4 === 3) })
  expect(again.groups.every(({ ok }) => ok)).toBe(true)
  await listener.received(d)
  // In total it publishes what memory publishes without locks, though at other times.
  const memory = new Driver(stores[2]!, 'holder')
  const other = new Listener(stores[2]!, { events: true })
  await memory.commit({ groups: running.map(({ id }) => [insert(id, 'a')]) })
  await memory.claim(24)
  await memory.commit({ groups })
  await other.received(memory)
  const own = new Set(running.map(({ id }) => id))
  const of = (events: readonly StoreEvent[]): unknown =>
    inOrder(events.filter(({ id }) => own.has(id)).map((event) => ({ ...event, at: 0 })))
  expect(of(listener.all)).toEqual(of(other.all))
  expect(byJob(listener.all.filter(({ id }) => own.has(id)))).toEqual(byJob(other.all.filter(({ id }) => own.has(id))))
  listener.stop()
  other.stop()
})

test('events that others number and remove meanwhile are received once, and a gap is reported', async () => {
  const { short, url, schema } = await scene()
  await short.store.open()
  const [reader, writer] = [new Client(url), new Client(url)]
  for (const client of [reader, writer]) {
    await client.connect()
    onTestFinished(() => client.end())
  }
  const rounds = 2_000
  const writing = writer.query(`do $$ begin
    for n in 1 .. ${rounds} loop
      insert into ${schema}.event (events, body) values (1, '{}');
      perform ${schema}.events_v1(n, 20, 1000000, 1000, 1000000);
      commit;
    end loop;
  end $$`)
  const reading = reader.query(`do $$ declare page json; after bigint := 0; begin
    while after < ${rounds} loop
      page := split_part(${schema}.events_v1(after, 20, 1000000, 5, 1000000), chr(28), 1)::json;
      if (page->'ends'->>-1)::bigint > (page->>'last')::bigint then raise exception 'received what comes again'; end if;
      if not (page->>'gap')::boolean and (page->'ends'->>0)::bigint > after + 1 then raise exception 'some were missing'; end if;
      after := (page->>'last')::bigint;
      commit;
    end loop;
  end $$`)
  await Promise.all([writing, reading])
})

test('a subscriber that resumes amid the events of a commit receives the rest of them, and none again, also where some are gone', async () => {
  const url = await sharedServer()
  const store = closing(postgres(url, { schema: newSchema(), ring: 5 }))
  const d = new Driver(store, 'adds')
  const first = new Listener(store, { events: true })
  await d.addMany(10, 'a')
  await first.received(d)
  const cursors = first.events.map(({ cursor }) => cursor)
  expect(cursors).toHaveLength(10)
  for (const at of [1, 7]) {
    const later = new Listener(store, { events: true, from: cursors[at]! })
    await later.received(d)
    expect(later.events.map(({ cursor }) => cursor)).toEqual(cursors.slice(at + 1))
    expect(later.notices.some(({ gap }) => gap)).toBe(false)
    later.stop()
  }
  for (let n = 0; n < 5; n++) await d.add('a')
  await first.received(d)
  const late = new Listener(store, { events: true, from: cursors[1]! })
  await late.until(() => late.notices.length > 0, 'the held events are received')
  await late.received(d)
  expect(late.notices[0]).toMatchObject({ gap: true })
  expect(late.events.map(({ id }) => id)).toEqual(first.events.slice(-4).map(({ id }) => id))
  for (const listener of [first, late]) listener.stop()
})
