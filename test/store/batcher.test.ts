// The batcher: calls that arrive while a batch is in flight leave as one batch, are applied once, and each is answered.

import * as fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { MillraceError, isMillraceError } from '../../src/job/errors/errors.js'
import { Batcher } from '../../src/store/batcher.js'
import type { BatcherOptions } from '../../src/store/batcher-options.js'
import type { Unanswered } from '../../src/store/batcher.js'
import type { Group, Verdict } from '../../src/store/store.js'
import { record } from '../job/lifecycle.records.js'
import {
  ManualRuntime,
  ScriptedStore,
  ask,
  group,
  idOf,
  landed,
  listen,
  refused,
  renewals,
  turn,
} from './manual-store.js'

let runtime: ManualRuntime
let store: ScriptedStore
let lane: Batcher

function open(options?: BatcherOptions): Batcher {
  return new Batcher(store, runtime, 'w1', options)
}

/** Sends these groups and lets their batch leave. */
async function send(...ids: readonly string[]): Promise<ReturnType<typeof listen<Verdict>>[]> {
  const settled = ids.map((id) => listen(lane.commit(group(id))))
  await runtime.proceed()
  return settled
}

beforeEach(() => {
  runtime = new ManualRuntime()
  store = new ScriptedStore()
  lane = open()
})

describe('a batch', () => {
  it('gathers everything that is asked for in the same turn, in order', async () => {
    const committed = listen(lane.commit(group('a')))
    const asked = listen(lane.claim(ask(2)))
    const renewed = listen(lane.renew(renewals('x')))
    lane.submit(group('b', 'c'), { landed: () => {}, failed: () => {} })
    expect(store.sent).toEqual([])
    await runtime.proceed()
    expect(store.sent.map(({ batch }) => batch)).toEqual([
      { writer: 'w1', seq: 1, groups: [group('a'), group('b', 'c')], renewals: renewals('x'), asks: [ask(2)] },
    ])
    expect([committed, asked, renewed]).toEqual([{}, {}, {}])
  })

  it('that is in flight lets the next one collect, which leaves when the first is answered', async () => {
    await send('a')
    await send('b')
    await send('c', 'd')
    expect(store.ids).toEqual([['a']])
    store.last.land()
    await turn()
    await runtime.proceed()
    expect(store.ids).toEqual([['a'], ['b', 'c', 'd']])
    expect(store.last.batch.seq).toBe(2)
  })

  it('that is answered while none waits is followed by none', async () => {
    await send('a')
    store.last.land()
    await runtime.proceed()
    expect([store.sent.length, runtime.deferred.length, runtime.timers.length]).toEqual([1, 0, 0])
  })

  it('holds at most `size` changes, and whole groups', async () => {
    lane = open({ size: 3 })
    for (const ids of [['a'], ['b', 'c'], ['d'], ['e', 'f', 'g'], ['h']]) void lane.commit(group(...ids))
    for (let batches = 0; batches < 4; batches++) {
      await runtime.proceed()
      store.last.land()
    }
    await runtime.proceed()
    expect(store.ids).toEqual([['a', 'b', 'c'], ['d'], ['e', 'f', 'g'], ['h']])
  })

  it('holds a single larger group, alone', async () => {
    lane = open({ size: 2 })
    for (const ids of [['a', 'b', 'c'], ['d'], ['e', 'f', 'g'], ['h']]) void lane.commit(group(...ids))
    for (let batches = 0; batches < 4; batches++) {
      await runtime.proceed()
      store.last.land()
    }
    expect(store.ids).toEqual([['a', 'b', 'c'], ['d'], ['e', 'f', 'g'], ['h']])
  })

  it('follows another until all have left, however many wait', async () => {
    lane = open({ size: 2 })
    const ids = Array.from({ length: 45 }, (_, at) => String(at))
    const settled = await send(...ids)
    for (let batches = 0; batches < 23; batches++) {
      store.last.land()
      await runtime.proceed()
    }
    expect(store.ids.flat()).toEqual(ids)
    expect(store.sent.length).toBe(23)
    expect(settled.every(({ value }) => value === landed)).toBe(true)
  })

  it('takes every ask and renewal along, however full it is', async () => {
    lane = open({ size: 1 })
    void lane.commit(group('a'))
    void lane.commit(group('b'))
    void lane.claim(ask(1))
    void lane.renew(renewals('x', 'y'))
    await runtime.proceed()
    expect(store.last.batch).toMatchObject({ groups: [group('a')], asks: [ask(1)], renewals: renewals('x', 'y') })
  })
})

describe('a group that is made late', () => {
  it('is made when its batch leaves, and takes in what happened until then', async () => {
    await send('a')
    const ids = ['b']
    const settled = listen(lane.commit(() => group(...ids)))
    await runtime.proceed()
    ids.push('c')
    store.last.land()
    await runtime.proceed()
    ids.push('d')
    expect(store.ids).toEqual([['a'], ['b', 'c']])
    store.last.land()
    await turn()
    expect(settled.value).toBe(landed)
  })

  it('fails only its caller if it cannot be made', async () => {
    const error = new Error('no flour')
    const before = listen(lane.commit(group('a')))
    const bad = listen(
      lane.commit(() => {
        throw error
      }),
    )
    const after = listen(lane.commit(group('b')))
    await runtime.proceed()
    expect(bad.error).toBe(error)
    expect(store.ids).toEqual([['a', 'b']])
    store.last.land({ groups: [landed, refused('fence', 'b')] })
    await turn()
    expect([before.value, after.value]).toEqual([landed, refused('fence', 'b')])
  })

  it('is made once, and goes first next time as it is, if it does not fit', async () => {
    lane = open({ size: 2 })
    let made = 0
    void lane.commit(group('a'))
    void lane.commit(() => group(`b${++made}`, 'c'))
    void lane.commit(group('d'))
    for (let batches = 0; batches < 3; batches++) {
      await runtime.proceed()
      store.last.land()
    }
    expect(store.ids).toEqual([['a'], ['b1', 'c'], ['d']])
  })

  it('is made once, and sent again as it is, if it was refused as busy', async () => {
    let made = 0
    const settled = listen(lane.commit(() => group(`a${++made}`)))
    await runtime.proceed()
    store.last.land({ groups: [refused('busy', 'a1')] })
    await runtime.proceed()
    await runtime.fire()
    expect(store.ids).toEqual([['a1'], ['a1']])
    store.last.land()
    await turn()
    expect(settled.value).toBe(landed)
  })

  it('may ask for more while it is made, without a second batch in flight', async () => {
    void lane.commit(() => {
      void lane.commit(group('b'))
      void lane.claim(ask(1))
      return group('a')
    })
    await runtime.proceed()
    expect(store.inFlight.length).toBe(1)
    store.last.land()
    await runtime.proceed()
    expect(store.sent.flatMap(({ batch }) => batch.groups.flat().map(idOf))).toEqual(['a', 'b'])
    expect(store.sent.flatMap(({ batch }) => batch.asks)).toEqual([ask(1)])
    expect(store.sent.map(({ batch }) => batch.seq)).toEqual([1, 2])
  })
})

describe("a writer's name", () => {
  const names = (): readonly string[] => store.sent.map(({ batch }) => `${batch.writer} ${batch.seq}`)

  /** Sends a batch and has it answered. */
  async function landing(id: string): Promise<void> {
    await send(id)
    store.last.land()
    await turn()
  }

  it('is another after so many batches, which count from 1 again', async () => {
    lane = open({ tenure: 2 })
    for (const id of ['a', 'b', 'c', 'd', 'e']) await landing(id)
    expect(names()).toEqual(['w1 1', 'w1 2', 'w1.1 1', 'w1.1 2', 'w1.2 1'])
  })

  it('is one for all batches by default', async () => {
    for (let n = 0; n < 600; n++) await landing('a')
    expect(names().at(-1)).toBe('w1 600')
  })

  it('stays with a batch that is sent again', async () => {
    lane = open({ tenure: 1 })
    await landing('a')
    await send('b')
    store.last.fail(new Error('lost'))
    await turn()
    await runtime.fire()
    store.last.land()
    await turn()
    await landing('c')
    expect(names()).toEqual(['w1 1', 'w1.1 1', 'w1.1 1', 'w1.2 1'])
  })

  it('stays after a batch with an unknown outcome, so that it cannot be applied after the next', async () => {
    lane = open({ tenure: 1, replays: 0 })
    await send('a')
    store.last.fail(new Error('lost'))
    await turn()
    await landing('b')
    await landing('c')
    expect(names()).toEqual(['w1 1', 'w1 2', 'w1.1 1'])
  })
})

describe('an answer', () => {
  it('reaches the caller of each group', async () => {
    const settled = await send('a', 'b', 'c')
    const groups = [landed, refused('duplicate', 'b'), refused('missing', 'c')]
    store.last.land({ groups })
    await turn()
    expect(settled.map(({ value }) => value)).toEqual(groups)
  })

  it('reaches each ask with its own jobs', async () => {
    const first = listen(lane.claim(ask(1)))
    const second = listen(lane.claim(ask(2)))
    await runtime.proceed()
    const [a, b, c] = ['a', 'b', 'c'].map((id) => record({ id, state: 'active' }))
    store.last.land({ asks: [[a!], [b!, c!]] })
    await turn()
    expect([first.value, second.value]).toEqual([{ jobs: [a] }, { jobs: [b, c] }])
  })

  it('reaches each who renewed with its own slice', async () => {
    const settled = [['a', 'b'], [], ['c'], ['d', 'e']].map((ids) => listen(lane.renew(renewals(...ids))))
    await runtime.proceed()
    expect(store.last.batch.renewals).toEqual(renewals('a', 'b', 'c', 'd', 'e'))
    const verdicts = ['a', 'b', 'c', 'd', 'e'].map((id) => refused('fence', id))
    const [a, b, c, d, e] = verdicts
    store.last.land({ renewals: verdicts })
    await turn()
    expect(settled.map(({ value }) => value)).toEqual([[a, b], [], [c], [d, e]])
  })

  it('lets a caller ask for more at once, in the next batch', async () => {
    lane.submit(group('a'), {
      landed: () => lane.submit(group('b'), { landed: () => {}, failed: () => {} }),
      failed: () => {},
    })
    await runtime.proceed()
    store.last.land()
    await runtime.proceed()
    expect(store.ids).toEqual([['a'], ['b']])
    expect(store.inFlight.length).toBe(1)
  })
})

const careless = (): never => {
  throw new Error('careless')
}

// A known fault: an exception in `landed` counts as a failed commit, and all callers of its batch are answered twice.
it('a caller that throws does not reject the other callers of its batch', async () => {
  const calls: string[] = []
  lane = open({ broken: (error) => calls.push(String(error)) })
  const caller = (id: string) => ({
    landed: () => calls.push(`${id} landed`),
    failed: () => calls.push(`${id} failed`),
  })
  lane.submit(group('a'), caller('a'))
  lane.submit(group('b'), { landed: careless, failed: () => {} })
  lane.submit(group('c'), caller('c'))
  await runtime.proceed()
  store.last.land()
  await turn()
  expect(calls).toEqual(['a landed', 'Error: careless', 'c landed'])
})

describe('a commit without an answer', () => {
  const lost = new Error('connection reset')

  it('is sent again with the same writer, number and content, whatever came in meanwhile', async () => {
    const [settled] = await send('a')
    const later = listen(lane.commit(group('b')))
    store.last.fail(lost)
    await runtime.proceed()
    expect(store.sent.length).toBe(1) // not before its pause is over
    await runtime.fire()
    expect(store.sent.length).toBe(2)
    expect(store.last.batch).toEqual({ writer: 'w1', seq: 1, groups: [group('a')], renewals: [], asks: [] })
    store.last.land()
    await runtime.proceed()
    expect(settled!.value).toBe(landed)
    expect(store.last.batch).toMatchObject({ seq: 2, groups: [group('b')] })
    store.last.land()
    await turn()
    expect(later.value).toBe(landed)
  })

  it('does not have its late groups made again', async () => {
    let made = 0
    void lane.commit(() => group(`a${++made}`))
    await runtime.proceed()
    store.last.fail(lost)
    await turn()
    await runtime.fire()
    expect(store.ids).toEqual([['a1'], ['a1']])
  })

  it('is given up after `replays`, with growing pauses, as STORE_UNAVAILABLE with the error of the store', async () => {
    lane = open({ replays: 3 })
    const settled = [...(await send('a', 'b')), listen(lane.commit(group('later')))]
    const pauses: number[] = []
    for (let tries = 0; tries < 3; tries++) {
      store.last.fail(new Error('refused'))
      await turn()
      pauses.push(...(await runtime.fire()))
    }
    expect(settled.map((each) => each.error)).toEqual([undefined, undefined, undefined])
    expect(pauses).toEqual([12.5, 25, 50])
    store.last.fail(lost)
    await runtime.proceed()
    for (const { error } of settled.slice(0, 2)) {
      expect(isMillraceError(error, 'STORE_UNAVAILABLE')).toBe(true)
      expect(error).toMatchObject({ cause: lost, message: expect.stringContaining('connection reset') as string })
    }
    expect(settled[2]).toEqual({})
  })

  it('rejects all its own callers and no others, and the next batch goes on with a higher number', async () => {
    lane = open({ replays: 0 })
    const own = [listen(lane.commit(group('a'))), listen(lane.claim(ask(1))), listen(lane.renew(renewals('x')))]
    await runtime.proceed()
    const [next] = await send('b')
    store.last.fail(lost)
    await runtime.proceed()
    for (const { error } of own) expect(isMillraceError(error, 'STORE_UNAVAILABLE')).toBe(true)
    expect(store.last.batch).toEqual({ writer: 'w1', seq: 2, groups: [group('b')], renewals: [], asks: [] })
    store.last.land()
    await turn()
    expect(next!.value).toBe(landed)
  })

  it.each(['STORE_CLOSED', 'WRITER_BEHIND', 'DATABASE_LOCKED', 'DATABASE_FULL'] as const)(
    'is not sent again after %s',
    async (code) => {
      const error = new MillraceError(code, 'no')
      const [settled] = await send('a')
      store.last.fail(error)
      await runtime.proceed()
      expect(settled!.error).toBe(error)
      expect([store.sent.length, runtime.timers.length]).toEqual([1, 0])
      await send('b')
      expect(store.last.batch.seq).toBe(2)
    },
  )

  it('that reports that nothing was written is not trusted about the try before it', async () => {
    const [settled] = await send('a')
    store.last.fail(lost)
    await turn()
    await runtime.fire()
    store.last.fail(new MillraceError('DATABASE_LOCKED', 'locked'))
    await runtime.proceed()
    expect(settled!.error).toMatchObject({ code: 'STORE_UNAVAILABLE', cause: { code: 'DATABASE_LOCKED' } })
  })

  it.each([undefined, 'text', 42])('is reported even if the store rejected with %s', async (reason) => {
    lane = open({ replays: 0 })
    const [settled] = await send('a')
    store.last.fail(reason)
    await turn()
    expect(settled!.error).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: expect.stringContaining(String(reason)) as string,
    })
  })
})

describe('a group refused as busy', () => {
  it('is sent again later by itself, and delays no other batch', async () => {
    const [a, b, c] = await send('a', 'b', 'c')
    const [d] = await send('d')
    store.last.land({ groups: [landed, refused('busy', 'b'), landed] })
    await runtime.proceed()
    expect([a!.value, b!.value, c!.value]).toEqual([landed, undefined, landed])
    expect(store.ids).toEqual([['a', 'b', 'c'], ['d']])
    store.last.land()
    await runtime.proceed()
    expect([d!.value, b!.value]).toEqual([landed, undefined])
    await runtime.fire()
    expect(store.ids.at(-1)).toEqual(['b'])
    expect(store.last.batch.seq).toBe(3)
    store.last.land({ groups: [refused('fence', 'b')] })
    await turn()
    expect(b!.value).toEqual(refused('fence', 'b'))
  })

  it('is answered at once where its caller can come back later', async () => {
    const settled = lane.tryCommit(group('a'))
    await runtime.proceed()
    store.last.land({ groups: [refused('busy', 'a')] })
    expect(await settled).toEqual(refused('busy', 'a'))
    expect([store.sent.length, runtime.timers.length]).toEqual([1, 0])
  })

  it('joins the batch that gathers while it comes back', async () => {
    await send('a')
    store.last.land({ groups: [refused('busy', 'a')] })
    await runtime.proceed()
    await send('b')
    await runtime.fire()
    await send('c')
    store.last.land()
    await runtime.proceed()
    expect(store.ids).toEqual([['a'], ['b'], ['a', 'c']])
  })

  it('is given up after `busyTries`, with growing pauses up to a bound, as STORE_BUSY', async () => {
    lane = open({ busyTries: 8 })
    const [settled] = await send('a')
    const pauses: number[] = []
    for (let tries = 0; tries < 8; tries++) {
      store.last.land({ groups: [refused('busy', 'a')] })
      await runtime.proceed()
      pauses.push(...(await runtime.fire()))
    }
    expect(settled).toEqual({})
    expect(store.sent.length).toBe(9)
    expect(pauses).toEqual([5, 10, 20, 40, 80, 125, 125, 125])
    store.last.land({ groups: [refused('busy', 'a')] })
    await runtime.proceed()
    expect(isMillraceError(settled!.error, 'STORE_BUSY')).toBe(true)
    expect([store.sent.length, runtime.timers.length]).toEqual([9, 0])
  })
})

describe('a flush', () => {
  it('is now, where nothing was ever asked for', async () => {
    const settled = listen(lane.flushed().then(() => true))
    await turn()
    expect(settled.value).toBe(true)
  })

  it('waits for groups that wait, then fly', async () => {
    void lane.commit(group('a'))
    const settled = listen(lane.flushed().then(() => true))
    await turn()
    expect(settled).toEqual({})
    await runtime.proceed()
    expect(settled).toEqual({})
    store.last.land()
    await turn()
    expect(settled.value).toBe(true)
  })

  it('waits for what was asked for before it, and not for what comes after', async () => {
    await send('a')
    await send('b')
    const settled = listen(lane.flushed().then(() => true))
    await send('c')
    store.last.land()
    await runtime.proceed()
    expect(settled).toEqual({})
    await send('d')
    store.last.land()
    await runtime.proceed()
    expect(settled.value).toBe(true)
    expect(store.inFlight).toHaveLength(1)
  })

  it('waits for a group that is parked', async () => {
    await send('a')
    store.last.land({ groups: [refused('busy', 'a')] })
    await runtime.proceed()
    const settled = listen(lane.flushed().then(() => true))
    await turn()
    expect(settled).toEqual({})
    await runtime.fire()
    expect(settled).toEqual({})
    store.last.land()
    await turn()
    expect(settled.value).toBe(true)
  })

  it('comes after a failure too', async () => {
    lane = open({ replays: 0 })
    await send('a')
    const settled = listen(lane.flushed().then(() => true))
    store.last.fail(new Error('gone'))
    await turn()
    expect(settled.value).toBe(true)
  })

  it('comes when all that waited could not be made', async () => {
    lane.submit(
      () => {
        throw new Error('no flour')
      },
      { landed: () => {}, failed: () => {} },
    )
    const settled = listen(lane.flushed().then(() => true))
    await runtime.proceed()
    for (const sent of store.inFlight) sent.land()
    await turn()
    expect(settled.value).toBe(true)
  })
})

it('two lanes are independent: a stuck batch in one holds up no renewal in the other', async () => {
  const other = new Batcher(store, runtime, 'w1/renewals')
  const [stuck] = await send('a')
  for (let round = 1; round <= 3; round++) {
    const settled = listen(other.renew(renewals('x')))
    await runtime.proceed()
    expect(store.last.batch).toMatchObject({ writer: 'w1/renewals', seq: round })
    store.last.land()
    await turn()
    expect(settled.value).toEqual([landed])
  }
  expect(stuck).toEqual({})
  expect(store.inFlight.map(({ batch }) => batch.writer)).toEqual(['w1'])
})

/** Numbers go up by one, or stay for a replay of the same; sizes and the order of first sending are kept. */
function judge(batches: readonly { readonly seq: number; readonly groups: readonly Group[] }[], size: number): void {
  const firsts: number[] = []
  for (const [at, { seq, groups }] of batches.entries()) {
    const before = batches[at - 1]
    if (before?.seq === seq) expect(groups).toBe(before.groups)
    else expect(seq).toBe((before?.seq ?? 0) + 1)
    expect(groups.length === 1 || groups.flat().length <= size).toBe(true)
    for (const id of groups.map((each) => Number(idOf(each[0]!)))) if (!firsts.includes(id)) firsts.push(id)
  }
  expect(firsts).toEqual(firsts.toSorted((a, b) => a - b))
}

describe('whatever the store does', () => {
  const turns = fc.array(
    fc.oneof(
      fc.record({ do: fc.constant('submit'), changes: fc.integer({ min: 1, max: 5 }), late: fc.boolean() }),
      fc.record({ do: fc.constantFrom('proceed', 'fire', 'lose', 'close') }),
      fc.record({ do: fc.constant('land'), busy: fc.nat({ max: 7 }) }),
    ),
    { maxLength: 40, size: 'max' },
  )

  it('every caller is answered once, batches keep order and size, and only one is in flight', async () => {
    const run = fc.asyncProperty(turns, fc.integer({ min: 1, max: 6 }), async (taken, size) => {
      runtime = new ManualRuntime()
      store = new ScriptedStore()
      lane = open({ size, replays: 2, busyTries: 2 })
      const calls: number[] = []
      const answer = (busy: number): void => {
        const sent = store.inFlight[0]
        const groups = sent?.batch.groups.map((each, at) =>
          (busy >> at) & 1 ? refused('busy', idOf(each[0]!)) : landed,
        )
        sent?.land({ groups: groups ?? [] })
      }
      for (const step of taken) {
        if (step.do === 'submit') {
          const at = calls.push(0) - 1
          const made = group(...Array.from({ length: step.changes }, () => String(at)))
          lane.submit(step.late ? () => made : made, { landed: () => calls[at]!++, failed: () => calls[at]!++ })
        } else if (step.do === 'proceed') await runtime.proceed()
        else if (step.do === 'fire') await runtime.fire()
        else if (step.do === 'land') answer(step.busy)
        else
          store.inFlight[0]?.fail(step.do === 'lose' ? new Error('lost') : new MillraceError('STORE_CLOSED', 'closed'))
        expect(store.inFlight.length).toBeLessThanOrEqual(1)
      }
      const idle = listen(lane.flushed().then(() => true))
      for (let rounds = 0; idle.value === undefined && rounds < 200; rounds++) {
        await runtime.proceed()
        answer(0)
        await runtime.fire()
      }
      expect(idle.value).toBe(true)
      expect(calls).toEqual(calls.map(() => 1))
      judge(
        store.sent.map(({ batch }) => batch),
        size,
      )
    })
    await fc.assert(run, { numRuns: 200 })
  })
})

describe('a batch that is too large for the store', () => {
  const tooLarge = (): MillraceError => new MillraceError('DATA_TOO_LARGE', 'too much')

  /**
   * Refuses batches with more than so many changes (or with one of these ids), and applies the others; resolves when none
   * is left.
   */
  async function run(most: number, never: readonly string[] = []): Promise<void> {
    for (; store.inFlight.length > 0; await runtime.proceed()) {
      const { last } = store
      const ids = last.batch.groups.flat().map(idOf)
      if (ids.length > most || ids.some((id) => never.includes(id))) last.fail(tooLarge())
      else last.land()
    }
  }

  it('is sent in halves, in order, each under a number of its own', async () => {
    const settled = await send('a', 'b', 'c', 'd', 'e')
    await run(2)
    expect(store.ids).toEqual([['a', 'b', 'c', 'd', 'e'], ['a', 'b', 'c'], ['a', 'b'], ['c'], ['d', 'e']])
    expect(store.sent.map(({ batch }) => batch.seq)).toEqual([1, 2, 3, 4, 5])
    expect(settled.every(({ value }) => value === landed)).toBe(true)
  })

  it('fails only the caller of a group that is too large by itself', async () => {
    const settled = await send('a', 'b', 'c', 'd')
    await run(4, ['c'])
    expect(settled.map(({ error }) => (isMillraceError(error) ? error.code : undefined))).toEqual([
      ...[undefined, undefined, 'DATA_TOO_LARGE', undefined],
    ])
    expect([0, 1, 3].every((at) => settled[at]!.value === landed)).toBe(true)
  })

  it('takes renewals and asks along behind the last group, or by themselves', async () => {
    const group1 = listen(lane.commit(group('a')))
    const asked = listen(lane.claim(ask(2)))
    const renewed = listen(lane.renew(renewals('x')))
    await runtime.proceed()
    await run(1, ['a'])
    expect(group1.error).toMatchObject({ code: 'DATA_TOO_LARGE' })
    expect([asked.value, renewed.value]).toEqual([{ jobs: [] }, [landed]])
    expect(store.last.batch).toMatchObject({ groups: [], asks: [ask(2)], renewals: renewals('x') })
  })

  it('keeps what comes meanwhile waiting, and the order of all', async () => {
    await send('a', 'b')
    const late = await send('c')
    await run(1)
    expect(store.ids).toEqual([['a', 'b'], ['a'], ['b'], ['c']])
    expect(late).toEqual([{ value: landed }])
  })

  it('is so also when a try before got no answer', async () => {
    const settled = await send('a', 'b')
    store.last.fail(new Error('line lost'))
    await turn()
    await runtime.fire()
    expect(store.last.batch.seq).toBe(1)
    await run(1)
    expect(store.sent.map(({ batch }) => batch.seq)).toEqual([1, 1, 2, 3])
    expect(settled).toEqual([{ value: landed }, { value: landed }])
  })

  it('whose half gets no answer is sent again alone, and the other half follows it', async () => {
    lane = open({ replays: 1 })
    const settled = await send('a', 'b')
    store.last.fail(tooLarge())
    await turn()
    for (let tries = 0; tries < 2; tries++) {
      store.last.fail(new Error('line lost'))
      await turn()
      await runtime.fire()
    }
    store.last.land()
    await runtime.proceed()
    expect(store.ids).toEqual([['a', 'b'], ['a'], ['a'], ['b']])
    expect(settled[0]!.error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    expect(settled[1]).toEqual({ value: landed })
  })
})

describe('an ask without an answer', () => {
  const job = record({ id: 'claimed', state: 'active' })

  /** Asks for a job, and loses every answer until the lane has given up. */
  async function lose(unanswered: Unanswered, ...ids: readonly string[]) {
    lane = open({ replays: 1 })
    const settled = ids.map((id) => listen(lane.commit(group(id))))
    const asked = listen(lane.claim(ask(1), unanswered))
    await runtime.proceed()
    for (let tries = 0; tries < 2; tries++) {
      store.last.fail(new Error('line lost'))
      await turn()
      if (tries === 0) await runtime.fire()
    }
    return { settled, asked }
  }

  it('is sent again under its number after a pause, without groups, and answered late', async () => {
    const { settled, asked } = await lose(() => 700, 'a')
    expect(settled[0]!.error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    expect(asked).toEqual({})
    expect(await runtime.fire()).toEqual([700])
    expect(store.last.batch).toEqual({ writer: 'w1', seq: 1, groups: [], renewals: [], asks: [ask(1)] })
    store.last.land({ asks: [[job]] })
    await runtime.proceed()
    expect(asked.value).toEqual({ jobs: [job] })
    expect([store.sent.length, runtime.timers.length]).toEqual([3, 0])
  })

  it('goes before whatever comes next, which leaves when it is answered', async () => {
    const { asked } = await lose(() => 60_000)
    const next = await send('b')
    expect(store.last.batch).toMatchObject({ seq: 1, asks: [ask(1)] })
    store.last.land({ asks: [[job]] })
    await runtime.proceed()
    expect(asked.value).toEqual({ jobs: [job] })
    expect(store.last.batch).toMatchObject({ seq: 2, groups: [group('b')], asks: [] })
    store.last.land()
    await runtime.proceed()
    expect([next[0]!.value, runtime.timers.length]).toEqual([landed, 0])
  })

  it('rejects other callers while the store is away, and sends nothing of theirs', async () => {
    const errors: unknown[] = []
    await lose((error) => errors.push(error))
    const next = await send('b')
    store.last.fail(new Error('line lost'))
    await turn()
    await runtime.fire()
    store.last.fail(new Error('line lost'))
    await runtime.proceed()
    expect(next[0]!.error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    expect(store.ids.flat()).toEqual([])
    expect(errors.length).toBe(2)
  })

  it('is given up on request once the leases that it may have given are over, and what comes next has the next number', async () => {
    let elapsed = 0
    runtime.elapsed = () => elapsed
    const { asked } = await lose((_error, over) => (over ? undefined : 1))
    elapsed = 30_000
    await runtime.fire()
    store.last.fail(new Error('line lost'))
    await turn()
    await runtime.fire()
    store.last.fail(new Error('line lost'))
    await runtime.proceed()
    expect(asked.error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    await send('b')
    expect(store.last.batch).toMatchObject({ seq: 2, groups: [group('b')] })
  })

  it('is given up when the store has been closed', async () => {
    const { asked } = await lose(() => 1)
    await runtime.fire()
    store.last.fail(new MillraceError('STORE_CLOSED', 'closed'))
    await runtime.proceed()
    expect(asked.error).toMatchObject({ code: 'STORE_CLOSED' })
    expect([runtime.timers.length, runtime.deferred.length]).toEqual([0, 0])
  })

  it('is rejected at once by default', async () => {
    lane = open({ replays: 0 })
    const asked = listen(lane.claim(ask(1)))
    await runtime.proceed()
    store.last.fail(new Error('line lost'))
    await runtime.proceed()
    expect(asked.error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    expect(runtime.timers.length).toBe(0)
  })
})
