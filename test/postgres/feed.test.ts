// What watchers are told while they resume, with a database that answers when the test says so.
import { expect, test } from 'vitest'
import { draft } from '../../src/stores/announce.js'
import { Feed } from '../../src/stores/postgres/feed.js'
import type { FeedSource } from '../../src/stores/postgres/feed.js'
import { gate, mailbox } from '../setup.js'

type Answer = Awaited<ReturnType<FeedSource['events']>>

/** A stream of events by number, of which reads wait until the test lets them go on. */
function database(last: number): { source: FeedSource; reads: { next(): Promise<Read> }; add(): void } {
  const reads = mailbox<Read>()
  let event = last
  const source: FeedSource = {
    announce: async () => ({ event, floor: 0 }),
    events: async (after) => {
      const going = gate()
      reads.put({ after, go: going.open, fail: going.fail })
      await going.promise
      const numbers = Array.from({ length: event - after }, (_, at) => after + 1 + at)
      const events = numbers.map((n) => {
        return { ...draft('waiting', { id: `job ${n}`, queue: 'q', name: 'n' }, 0), cursor: String(n) }
      })
      return { last: event, gap: false, events } satisfies Answer
    },
  }
  return { source, reads, add: () => void event++ }
}

interface Read {
  readonly after: number
  readonly go: () => void
  readonly fail: (error: Error) => void
}

test('one who resumes hears what it missed before what comes meanwhile, and one who came with it misses nothing', async () => {
  const { source, reads, add } = database(5)
  const feed = new Feed(source)
  const heard: string[] = []
  const other: string[] = []
  feed.watch(
    { events: true, from: '2' },
    ({ events }) => heard.push(...events.map(({ id }) => id)),
    () => {},
  )
  feed.watch(
    { events: true },
    ({ events }) => other.push(...events.map(({ id }) => id)),
    () => {},
  )
  const announced = feed.announce()
  ;(await reads.next()).go() // what has come to light until now
  const resuming = await reads.next()
  expect(resuming.after).toBe(2)
  add()
  feed.look() // somebody has committed meanwhile
  const looked = reads.next().then(({ go }) => go()) // as soon as it is asked for
  await new Promise(setImmediate)
  resuming.go()
  await announced
  await looked
  await new Promise(setImmediate)
  expect(heard).toEqual(['job 3', 'job 4', 'job 5', 'job 6'])
  expect(other).toEqual(['job 6'])
})

test('one who could not be told what it missed is told when the next attempt goes well', async () => {
  const { source, reads } = database(5)
  const feed = new Feed(source)
  const heard: string[] = []
  feed.watch(
    { events: true, from: '2' },
    ({ events }) => heard.push(...events.map(({ id }) => id)),
    () => {},
  )
  const failing = feed.announce()
  ;(await reads.next()).go()
  ;(await reads.next()).fail(new Error('the connection is gone'))
  await expect(failing).rejects.toThrow('the connection is gone')
  expect(feed.isNew).toBe(true) // so that it is tried again
  const announced = feed.announce()
  ;(await reads.next()).go()
  ;(await reads.next()).go()
  await announced
  await new Promise(setImmediate)
  expect(heard).toEqual(['job 3', 'job 4', 'job 5'])
})
