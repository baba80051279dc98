// What watchers receive while they resume, and where reads fail, with a database that answers when the test lets it.
import { expect, onTestFinished, test } from 'vitest'
import { systemRuntime } from '../../../src/store/runtime.js'
import { draft } from '../../../src/job/events.js'
import type { EventPage } from '../../../src/stores/event-pages.js'
import { Waits } from '../../../src/stores/read-loop.js'
import { EventFeed } from '../../../src/stores/postgres/events/event-feed.js'
import type { CommitNotice, FeedSource } from '../../../src/stores/postgres/events/event-feed.js'
import { gate, mailbox } from '../../setup.js'

interface Database {
  readonly feed: EventFeed
  readonly reads: { next(): Promise<Read> }
  /** Lets all reads from now on go by themselves. */
  free(): void
  add(): void
  /** What the next announcement answers besides. */
  notice: Pick<CommitNotice, 'fresh' | 'first'>
  /** The commits that are under way. */
  commits: string[]
  skipped: number
  overdue: number
}

/** A stream of events by number, of which reads wait until the test lets them go on. */
function database(last: number): Database {
  const reads = mailbox<Read>()
  let event = last
  let floor = 0
  let free = false
  const source: FeedSource = {
    announce: async () => ({ event, ...own.notice }),
    underWay: async (among) => ({ event, commits: own.commits.filter((each) => among?.includes(each) ?? true) }),
    events: async (after) => {
      const going = gate()
      if (!free) {
        reads.put({ after, go: going.open, fail: going.fail })
        await going.promise
      }
      const since = Math.max(after, floor)
      const numbers = Array.from({ length: event - since }, (_, at) => since + 1 + at)
      const events = numbers.map((n) => {
        return { ...draft('waiting', { id: `job ${n}`, queue: 'q', name: 'n' }, 0), cursor: String(n) }
      })
      return { last: event, more: false, gap: after < floor, events } satisfies EventPage
    },
    skip: async () => {
      own.skipped++
      floor = ++event
    },
    overdue: () => {
      own.overdue++
      own.feed.look()
    },
  }
  const pauses = new Waits({ ...systemRuntime(), timer: (_, work) => systemRuntime().timer(1, work) })
  onTestFinished(() => pauses.close())
  const own: Database = {
    feed: new EventFeed(source, pauses),
    reads,
    free: () => void (free = true),
    add: () => void event++,
    notice: { fresh: false, first: false },
    commits: [],
    skipped: 0,
    overdue: 0,
  }
  return own
}

interface Read {
  readonly after: number
  readonly go: () => void
  readonly fail: (error: Error) => void
}

const GONE = new Error('the connection is gone')

/** What a watcher receives, in words. */
function watching(feed: EventFeed, from?: string): { received: string[]; until(word: string): Promise<void> } {
  const received: string[] = []
  let wake = (): void => {}
  feed.watch(
    { events: true, ...(from !== undefined && { from }) },
    ({ events, gap }) => {
      received.push(...(gap ? ['gap'] : []), ...events.map(({ id }) => id))
      wake()
    },
    () => {},
  )
  return {
    received,
    until: async (word) => {
      while (!received.includes(word)) await new Promise<void>((resolve) => (wake = resolve))
    },
  }
}

test('a subscriber that resumes receives what it missed before new events, and one that subscribes at the same time misses nothing', async () => {
  const { feed, reads, add, free } = database(5)
  const resumed = watching(feed, '2')
  const other = watching(feed)
  await feed.announce()
  const resuming = await reads.next()
  expect(resuming.after).toBe(2)
  add()
  feed.look() // another process has committed meanwhile
  ;(await reads.next()).go()
  await other.until('job 6')
  expect(resumed.received).toEqual([])
  free()
  resuming.go()
  await resumed.until('job 6')
  add()
  feed.look()
  await resumed.until('job 7')
  await other.until('job 7')
  expect(resumed.received).toEqual(['job 3', 'job 4', 'job 5', 'job 6', 'job 7'])
  expect(other.received).toEqual(['job 6', 'job 7'])
})

test('a subscriber whose read of missed events failed receives them when the next attempt succeeds', async () => {
  const { feed, reads } = database(5)
  const resumed = watching(feed, '2')
  await feed.announce()
  ;(await reads.next()).fail(GONE)
  ;(await reads.next()).go()
  await resumed.until('job 5')
  expect(resumed.received).toEqual(['job 3', 'job 4', 'job 5'])
})

test('a subscriber whose missed events cannot be read receives a gap, alone, and all events from then on', async () => {
  const { feed, reads, add, free } = database(5)
  const resumed = watching(feed, '2')
  const other = watching(feed)
  await feed.announce() // is not held up by it
  for (let tries = 0; tries < 5; tries++) (await reads.next()).fail(GONE)
  await resumed.until('gap')
  free()
  add()
  feed.look()
  await resumed.until('job 6')
  await other.until('job 6')
  expect(resumed.received).toEqual(['gap', 'job 6'])
  expect(other.received).toEqual(['job 6'])
})

test('a read that fails is made again until it goes well', async () => {
  const { feed, reads, add } = database(5)
  const watcher = watching(feed)
  await feed.announce()
  add()
  feed.look()
  for (let tries = 0; tries < 8; tries++) (await reads.next()).fail(GONE)
  ;(await reads.next()).go()
  await watcher.until('job 6')
  expect(watcher.received).toEqual(['job 6'])
})

test('a new subscriber receives events once the commits that did not know of it have ended', async () => {
  const one = database(5)
  const { feed, add, free, commits } = one
  free()
  one.notice = { fresh: true, first: true }
  commits.push('3/7')
  const watcher = watching(feed)
  const announced = feed.announce()
  add()
  commits.push('3/8') // it began later, and knows
  commits.shift()
  await announced
  add()
  feed.look()
  await watcher.until('job 7')
  expect(watcher.received).toEqual(['job 7'])
  expect([one.skipped, one.overdue]).toEqual([0, 0])
})

test.each([
  ['first', 1],
  ['not the first', 0],
] as const)(
  'one who begins, and is %s, hears of a gap when commits that did not know of it end late',
  async (which, skipped) => {
    const one = database(5)
    const { feed, free, commits } = one
    free()
    one.notice = { fresh: true, first: which === 'first' }
    commits.push('3/7')
    const watcher = watching(feed)
    await feed.announce() // does not wait for ever
    expect(watcher.received).toEqual([])
    commits.pop()
    await watcher.until('gap')
    expect(watcher.received).toEqual(['gap'])
    expect(one.skipped).toBe(skipped)
  },
)
