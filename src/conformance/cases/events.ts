// conformance/cases/events.ts: cases on events: each is delivered once, in order, after its commit.
import { must, present, same } from '../check.js'
import { first, ids, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { Listener, withListener, onceEach, typesOf } from '../listener.js'
import {
  BOOM,
  cancel,
  complete,
  refusedChange,
  fail,
  insert,
  note,
  promote,
  put,
  remove,
  snooze,
  failAndRetry,
} from '../changes.js'

const EVENTS = { events: true }

/** Cases of events. */
export const events = area('events', {
  'the events of a job are published in order, each once': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, async (listener) => {
      const job = await d.add('work', { run: { in: 1_000 } })
      await d.land(promote(job))
      await d.land(note(await d.claimOne(), { progress: 50 }))
      await d.land(failAndRetry(await d.job(job), 1_000))
      await h.advance(1_000)
      await d.upkeep()
      await d.claimOne()
      await h.advance(LEASE)
      await d.upkeep()
      await d.land(complete(await d.claimOne(), { result: 'done' }))
      await d.land(remove(await d.job(job)))
      const events = await listener.received(d)
      const life = ['delayed', 'waiting', 'active', 'progress', 'retrying', 'delayed', 'waiting', 'active']
      const rest = ['stalled', 'waiting', 'active', 'completed', 'removed']
      same(typesOf(events, job.id), [...life, ...rest], 'every transition is published, in order')
      onceEach(listener.all)
    })
  },

  'an event has its type, job and time': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, async (listener) => {
      const [good, bad] = [await d.add('good'), await d.add('bad', { queue: 'other', run: { in: 5_000 } })]
      const claim = await d.commit({
        asks: [{ worker: 'w', queues: ['mill'], handles: [{ name: 'good', lease: LEASE }], want: 1, ahead: 0 }],
      })
      const held = present(claim.asks[0]?.[0], 'a job')
      await d.land(note(held, { progress: { half: true } }))
      await d.land(failAndRetry(held, 7_000))
      const retrying = await d.job(good)
      await d.land(promote(retrying))
      const done = await d.commit({ groups: [complete(await d.claimOne(), { result: [1] })] })
      await d.land(promote(bad))
      await d.land(fail(await d.claimOne({ queues: ['other'] })))
      const events = await listener.received(d)
      const eventOf = (id: string, type: string) =>
        present(
          events.find((event) => event.id === id && event.type === type),
          `the event ${type} of ${id} is published`,
        )
      const delayed = eventOf(bad.id, 'delayed')
      same([delayed.queue, delayed.name, delayed.runAt], ['other', 'bad', bad.runAt], '`delayed` has the date')
      same(delayed.at, bad.createdAt, 'an event is dated by its commit')
      const active = eventOf(good.id, 'active')
      same([active.worker, active.attempt, active.at], ['w', 1, claim.now], '`active` has the worker and the attempt')
      same(eventOf(good.id, 'progress').progress, '{"half":true}', '`progress` has the progress')
      same(eventOf(good.id, 'retrying').error?.message, BOOM.message, '`retrying` has the error')
      const completed = eventOf(good.id, 'completed')
      same([completed.result, completed.at], ['[1]', done.now], '`completed` carries the result')
      same(eventOf(bad.id, 'failed').error?.code, BOOM.code, '`failed` carries the error')
      const attempts = [eventOf(good.id, 'retrying'), completed, eventOf(bad.id, 'failed')].map(
        ({ attempt }) => attempt,
      )
      same(attempts, [1, 2, 1], 'the end of an attempt has its number')
    })
  },

  'a claim that takes the last waiting job of a queue publishes `drained` once': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, async (listener) => {
      await d.addMany(3, 'work')
      await d.claim(2)
      await listener.received(d)
      same(listener.all.filter(({ type }) => type === 'drained').length, 0, 'a queue with waiting jobs is not drained')
      await d.claim(2)
      await listener.received(d)
      same(
        listener.all.filter(({ type }) => type === 'drained').map(({ queue, id, name }) => [queue, id, name]),
        [['mill', '', '']],
        'the claim of the last waiting job drains its queue',
      )
    })
  },

  'the events of a cell are published as they were sent': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, async (listener) => {
      await d.land(put('pause:mill', { all: true, names: [] }, 0, [{ type: 'paused', queue: 'mill' }]))
      await d.land(put('pause:mill', { all: false, names: [] }, 1, [{ type: 'resumed', queue: 'mill', name: 'work' }]))
      await d.send([put('pause:mill', 0, 0, [{ type: 'paused', queue: 'mill' }])])
      const events = (await listener.received(d)).map(({ type, queue, name, id }) => ({ type, queue, name, id }))
      const expected = [
        { type: 'paused', queue: 'mill', name: '', id: '' },
        { type: 'resumed', queue: 'mill', name: 'work', id: '' },
      ] as const
      same(events, [...expected], 'a write of a cell publishes its events, and a refused one publishes none')
    })
  },

  'the release or failure of a dependent is published': async (h) => {
    const d = first(h)
    const [good, bad] = [await d.running('good'), await d.running('bad')]
    await withListener(h.store, EVENTS, async (listener) => {
      const [released, broken] = [await d.add('r', { after: [good] }), await d.add('b', { after: [bad] })]
      await d.commit({ groups: [complete(good), fail(bad)] })
      await d.upkeep()
      const events = await listener.received(d)
      same(typesOf(events, released.id), ['waiting-children', 'waiting'], 'a release is published')
      same(typesOf(events, broken.id).at(-1), 'failed', 'a failure by dependency is published')
    })
  },

  'a refused group publishes nothing, and the other groups of its batch do': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, async (listener) => {
      await d.commit({ groups: [[insert('a', 'work')], [insert('b', 'work'), refusedChange()], [insert('c', 'work')]] })
      const events = await listener.received(d)
      same(
        events.map(({ id }) => id),
        ['a', 'c'],
        'only applied groups are published',
      )
    })
  },

  'events come after the commit that made them true': async (h) => {
    const d = first(h)
    let committing = false
    const reads: Promise<boolean>[] = []
    const listener = new Listener(h.store, EVENTS, ({ events }) => {
      must(!committing, 'a listener never runs inside a commit')
      for (const { id } of events.filter((event) => event.type === 'waiting')) reads.push(d.exists(id))
    })
    try {
      for (let round = 0; round < 10; round++) {
        committing = true
        const sent = d.add('work')
        committing = false
        await sent
      }
      await listener.received(d)
      same(
        await Promise.all(reads),
        Array.from({ length: 10 }, () => true),
        'a published change can be read',
      )
    } finally {
      listener.stop()
    }
  },

  'a commit sent after watching began is published': async (h) => {
    const d = first(h)
    await d.add('before')
    await withListener(h.store, EVENTS, async (listener) => {
      const job = await d.add('after')
      await listener.received(d)
      same(
        ids([job]),
        [...new Set(listener.events.map(({ id }) => id))],
        'events are published from now on, and none before',
      )
    })
  },

  'resuming after a cursor misses nothing and repeats nothing': async (h) => {
    const d = first(h)
    const listener = new Listener(h.store, EVENTS)
    await d.addMany(5, 'work')
    const early = await listener.received(d)
    listener.stop()
    const cursor = present(early[2], 'five events').cursor
    await h.advance(5 * 60_000)
    await d.addMany(4, 'work')
    await d.claim(2)
    await withListener(h.store, { events: true, from: cursor }, async (resumed) => {
      await d.add('last')
      const events = await resumed.received(d)
      const missed = [...[4, 5, 6, 7, 8, 9].map((n) => `first-${n}`), 'first-1', 'first-2', 'first-10']
      same(
        events.map(({ id }) => id),
        missed,
        'events after the cursor are published, whether or not there was a watcher meanwhile',
      )
      must(
        resumed.notices.every(({ gap }) => !gap),
        'nothing is missing',
      )
      onceEach(resumed.all)
      same(events.slice(0, 2), early.slice(3), 'a repeated event is equal to the first')
    })
  },

  'a cursor that is too old leads to a gap': async (h) => {
    const { ring } = h
    if (ring === undefined) return
    const d = first(h)
    const listener = new Listener(h.store, EVENTS)
    await d.add('work')
    const [old] = await listener.received(d)
    const { cursor } = present(old, 'an event')
    for (let added = 0; added < ring + 200; added += 200) await d.addMany(200, 'work')
    listener.stop()
    await withListener(h.store, { events: true, from: cursor }, async (resumed) => {
      await resumed.received(d)
      same(resumed.notices[0]?.gap, true, 'a watcher that resumes too late gets a gap')
      onceEach(resumed.all)
    })
  },

  'the events that are held are bounded in bytes': async (h) => {
    const { ringBytes } = h
    if (ringBytes === undefined) return
    const d = first(h)
    const listener = new Listener(h.store, EVENTS)
    const job = await d.running('work')
    const [old] = await listener.received(d)
    const text = 'x'.repeat(Math.ceil(ringBytes / 8))
    for (let n = 0; n < 12; n++) await d.land(note(job, { progress: { n, text } }))
    const recent = present((await listener.received(d)).at(-3), 'twelve events').cursor
    listener.stop()
    await withListener(h.store, { events: true, from: present(old, 'an event').cursor }, async (resumed) => {
      await resumed.received(d)
      same(resumed.notices[0]?.gap, true, 'events beyond the bound are dropped, and a watcher that resumes gets a gap')
      must(resumed.events.length < 9, 'no more is held than the bound allows')
    })
    await withListener(h.store, { events: true, from: recent }, async (resumed) => {
      const events = await resumed.received(d)
      must(!resumed.notices.some(({ gap }) => gap) && events.length === 2, 'what is within the bound is held')
    })
  },

  'missed events are published in pages': async (h) => {
    const d = first(h)
    const listener = new Listener(h.store, EVENTS)
    const job = await d.running('work')
    const [old] = await listener.received(d)
    const text = 'x'.repeat(200_000)
    for (let n = 0; n < 12; n++) await d.land(note(job, { progress: { n, text } }))
    await listener.received(d)
    listener.stop()
    await withListener(h.store, { events: true, from: present(old, 'an event').cursor }, async (resumed) => {
      await resumed.received(d)
      same(resumed.all.slice(0, listener.all.length - 1), listener.all.slice(1), 'every event is published, in order')
      for (const { events } of resumed.notices) {
        must(JSON.stringify(events).length < 2_000_000, 'a page is no larger than some bytes, or one commit')
      }
    })
  },

  'the event of a cancelled job has the reason of its cancellation, and no other error': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, async (listener) => {
      const [running, waiting] = [await d.running('work'), await d.add('work')]
      await d.land(cancel(running, 'while it ran'))
      await d.land(cancel(waiting, 'before it ran'))
      const failed = await d.running('other')
      await d.land(failAndRetry(failed, 1_000))
      await d.land(cancel(await d.job(failed)))
      const events = await listener.received(d)
      const reasons = events.filter(({ type }) => type === 'cancelled').map(({ error }) => error?.message)
      same(reasons, ['while it ran', 'before it ran', undefined], 'the event has the reason, if one was given')
    })
  },

  'every watcher gets every event': async (h) => {
    const d = first(h)
    await withListener(h.store, EVENTS, (one) =>
      withListener(h.store, EVENTS, async (two) => {
        await d.land(complete(await d.running('work')))
        await d.land(cancel(await d.add('work')))
        const events = await one.received(d)
        await two.received(d)
        same(events.length, 5, 'every transition is published')
        same(two.events, events, 'two watchers get the same events')
      }),
    )
  },

  'commits through another handle are published': async (h) => {
    const d = first(h)
    const other = await second(h)
    await withListener(h.store, EVENTS, async (listener) => {
      await listener.received(d)
      await other.land(snooze(await other.running('work'), 1_000))
      await listener.received(other)
      same(
        typesOf(listener.events, 'second-1'),
        ['waiting', 'active', 'delayed'],
        'commits of every handle reach every watcher',
      )
    })
  },

  'commits of many handles at once are published in one order, without gaps': async (h) => {
    const d = first(h)
    const other = await second(h)
    await withListener(h.store, EVENTS, async (listener) => {
      await listener.received(d)
      const work = async (by: typeof d): Promise<void> => {
        for (let round = 0; round < 25; round++) await by.add('work')
      }
      await Promise.all([work(d), work(other)])
      await listener.received(other)
      await listener.received(d)
      const received = listener.events.map(({ id }) => id)
      for (const writer of ['first', 'second']) {
        const mine = received.filter((id) => id.startsWith(writer))
        same(
          mine,
          Array.from({ length: 25 }, (_, i) => `${writer}-${i + 1}`),
          'the commits of a writer are published in order',
        )
      }
      const half = present(listener.events[24], 'fifty events').cursor
      await withListener(h.store, { events: true, from: half }, async (resumed) => {
        await resumed.received(d)
        same(resumed.events, listener.events.slice(25), 'every watcher gets the same order')
      })
    })
  },

  'a stopped watcher gets nothing': async (h) => {
    const d = first(h)
    const stopped = new Listener(h.store, EVENTS)
    await withListener(h.store, EVENTS, async (listener) => {
      await stopped.received(d)
      await d.add('work')
      stopped.stop()
      stopped.stop()
      const count = stopped.notices.length
      await d.add('work')
      await listener.received(d)
      same(stopped.notices.length, count, 'a stopped watcher gets no notices')
    })
  },

  'a listener that throws affects no other watcher': async (h) => {
    const d = first(h)
    const throwing = new Listener(h.store, EVENTS, () => {
      throw new Error('a listener may throw')
    })
    try {
      await withListener(h.store, EVENTS, async (listener) => {
        await d.addMany(3, 'work')
        same((await listener.received(d)).length, 3, 'the other watchers get the notice')
        await d.add('work')
        same((await throwing.received(d)).length, 4, 'the watcher that threw gets later events')
      })
    } finally {
      throwing.stop()
    }
  },
})
