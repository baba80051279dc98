// What a handler reports without an await: gathered into few notes, in linear time, and bounded.
import { describe, expect, it, test } from 'vitest'
import type { Note } from '../../../src/job/change.js'
import { MillraceError } from '../../../src/job/errors/errors.js'
import type { Caller, GroupSource } from '../../../src/store/batcher.js'
import type { Group } from '../../../src/store/store.js'
import { PendingNotes } from '../../../src/worker/attempt/pending-notes.js'
import type { NoteBounds } from '../../../src/worker/attempt/pending-notes.js'
import { record } from '../../job/lifecycle.records.js'
import { listen, turn } from '../../store/manual-store.js'
import { event, newQueue, newWorker } from '../../setup.js'

/** PendingNotes on a lane that is answered by hand. */
function open(bounds?: NoteBounds) {
  const sent: { note: Note; caller: Caller }[] = []
  const submit = (source: GroupSource, caller: Caller): void => {
    const group: Group = typeof source === 'function' ? source() : source
    sent.push({ note: group[0] as Note, caller })
  }
  let waiting = 0
  const count = (bytes: number): void => void (waiting += bytes)
  const lost = (): MillraceError => new MillraceError('LEASE_LOST', 'lost')
  const notes = new PendingNotes(record({ id: 'a', state: 'active' }), { submit }, () => {}, lost, count, bounds)
  const land = async (): Promise<void> => {
    sent.at(-1)!.caller.landed({ ok: true, inserted: [] })
    await turn()
  }
  return { notes, sent, land, waiting: () => waiting }
}

/** How many elements of arrays were gone through by iteration, which is how arrays are copied. */
function iterated(work: () => void): number {
  const arrays = Array.prototype
  const own = Object.getOwnPropertyDescriptor(arrays, Symbol.iterator)!
  const iterate = own.value as (this: readonly unknown[]) => ArrayIterator<unknown>
  let count = 0
  const counting = function (this: readonly unknown[]): ArrayIterator<unknown> {
    count += this.length
    return iterate.call(this)
  }
  Object.defineProperty(arrays, Symbol.iterator, { ...own, value: counting })
  try {
    work()
  } finally {
    Object.defineProperty(arrays, Symbol.iterator, own)
  }
  return count
}

const line = (n: number): string => `line ${n}`

it('gathers lines in the order of their calls, in one note for all that are logged at once', async () => {
  const { notes, sent, land } = open()
  for (let n = 0; n < 3; n++) void notes.add({ logs: [line(n)], ...(n === 1 && { progress: '50', about: '{}' }) })
  await turn()
  void notes.add({ logs: [line(3)], progress: '70' })
  void notes.add({ logs: [line(4)] })
  await land()
  expect(sent.map(({ note }) => note)).toMatchObject([
    { logs: [0, 1, 2].map(line), progress: '50', about: '{}' },
    { logs: [3, 4].map(line), progress: '70' },
  ])
  expect(sent[1]!.note).not.toHaveProperty('about')
})

it('takes no copy of the lines before for each line', async () => {
  const { notes, sent } = open()
  const say = (count: number) => () => {
    for (let n = 0; n < count; n++) void notes.add({ logs: [line(n)] })
  }
  const few = iterated(say(200))
  const many = iterated(say(2_000))
  expect(many / few).toBeLessThan(20)
  await turn()
  expect(sent[0]!.note.logs?.length).toBe(2_200)
})

describe('at the bound of what is pending', () => {
  it('refuses further lines until some are durable', async () => {
    const { notes, land } = open({ logs: 1_000, steps: 1_000 })
    const received = Array.from({ length: 4 }, () => listen(notes.add({ logs: ['x'.repeat(300)] })))
    await turn()
    expect(received.map(({ error }) => (error as MillraceError | undefined)?.code)).toEqual([
      ...[undefined, undefined, undefined, 'LOG_OVERFLOW'],
    ])
    expect(listen(notes.add({ progress: '1' })).error).toBeUndefined()
    await land()
    await land()
    const next = listen(notes.add({ logs: ['x'.repeat(300)] }))
    await turn()
    await land()
    expect(next).toEqual({ value: undefined })
  })

  it('takes a single line that is larger', async () => {
    const { notes, sent } = open({ logs: 100, steps: 100 })
    void notes.add({ logs: ['x'.repeat(300)] })
    await turn()
    expect(sent[0]!.note.logs?.[0]?.length).toBe(300)
  })

  it('refuses no step: those that do not fit go with the next notes', async () => {
    const { notes, sent, land } = open({ logs: 1_000, steps: 1_000 })
    const received = Array.from({ length: 5 }, (_, n) =>
      listen(notes.add({ steps: [{ name: String(n), result: 'x'.repeat(400) }] })),
    )
    await turn()
    for (let notesSent = 0; notesSent < 3; notesSent++) await land()
    expect(sent.map(({ note }) => note.steps?.map(({ name }) => name))).toEqual([['0', '1'], ['2', '3'], ['4']])
    expect(received).toEqual(received.map(() => ({ value: undefined })))
  })
})

test('a handler that does not await its lines loses those past the bound, completes, and its worker reports it once', async () => {
  const queue = newQueue()
  const errors: string[] = []
  const large = 'x'.repeat(2 ** 19)
  const job = await queue.add('job')
  const worker = newWorker(queue, (_, ctx) => {
    for (let n = 0; n < 12; n++) void ctx.log(large)
  })
  worker.on('error', ({ error }) => void errors.push(error.message))
  await event(worker, 'completed')
  await turn()
  expect((await job.logs()).length).toBe(7)
  expect(errors).toEqual([expect.stringContaining('Await ctx.log') as string])
})

describe('the bytes that wait for the store', () => {
  const text = 'x'.repeat(1_000)

  test('are those of lines, steps and the latest progress, until the note is acknowledged', async () => {
    const { notes, land, waiting } = open()
    void notes.add({ logs: [text, text] })
    void notes.add({ steps: [{ name: 'step', result: text }] })
    for (let n = 0; n < 5; n++) void notes.add({ progress: text, about: text })
    expect(waiting()).toBe(5_004)
    await turn()
    void notes.add({ logs: [text] })
    expect(waiting()).toBe(6_004)
    await land()
    expect(waiting()).toBe(1_000)
    await land()
    expect(waiting()).toBe(0)
  })

  test('include steps that have to wait for the next note', async () => {
    const { notes, land, waiting } = open({ logs: 10_000, steps: 1_500 })
    for (let n = 0; n < 3; n++) void notes.add({ steps: [{ name: '', result: text }] })
    expect(waiting()).toBe(3_000)
    await turn()
    for (let left = 2_000; left >= 0; left -= 1_000) {
      await land()
      expect(waiting()).toBe(left)
    }
  })

  test('leave with the last note, which counts as a part of the settlement', async () => {
    const { notes, waiting } = open()
    void notes.add({ logs: [text] })
    const last = notes.takeLast()
    expect(waiting()).toBe(0)
    last!.landed({ ok: true, inserted: [] })
    await notes.notesSettled
    expect(waiting()).toBe(0)
  })
})
