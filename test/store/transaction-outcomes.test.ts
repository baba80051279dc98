// What is reported of users' own transactions: held until a job of them is seen, and bounded in number and in bytes.
import { describe, expect, it } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { VirtualClock } from 'millrace/testing'
import { MillraceError } from '../../src/job/errors/errors.js'
import type { JobRecord } from '../../src/job/job.js'
import { TransactionOutcomes } from '../../src/store/transaction-outcomes.js'
import type { Runtime } from '../../src/store/runtime.js'
import type { Store } from '../../src/store/store.js'

interface Scene {
  readonly clock: VirtualClock
  readonly outcomes: TransactionOutcomes
  /** Those that a read finds, by id, with when they were added. */
  readonly there: Map<string, number>
  /** How many jobs each read asked for. */
  readonly reads: number[]
  readonly reported: string[]
  /** Of each timer, whether it lets the process end. */
  readonly background: boolean[]
  /** When each of them ends. */
  readonly ends: number[]
  /** What reads fail with, if they do. */
  failure: Error | undefined
  /** Adds a job in a transaction of which nothing is known. */
  add(
    id: string,
    about?: { at?: number; jobs?: number; bytes?: number; queue?: string; as?: string; duplicate?: boolean },
  ): void
}

const job = (id: string, createdAt: number): JobRecord => ({ id, createdAt }) as JobRecord

function scene(): Scene {
  const clock = virtualClock()
  const there = new Map<string, number>()
  const [reads, reported]: [number[], string[]] = [[], []]
  const get = async (ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]> => {
    reads.push(ids.length)
    if (made.failure !== undefined) throw made.failure
    return ids.map((id) => (there.has(id) ? job(id, there.get(id)!) : undefined))
  }
  const background: boolean[] = []
  const ends: number[] = []
  const timer: Runtime['timer'] = (delay, work, lets = false) => {
    background.push(lets)
    ends.push(clock.runtime.elapsed() + delay)
    return clock.runtime.timer(delay, work)
  }
  const outcomes = new TransactionOutcomes({ get } as unknown as Store, { ...clock.runtime, timer })
  const made: Scene = {
    clock,
    outcomes,
    there,
    reads,
    reported,
    background,
    ends,
    failure: undefined,
    add: (id, { at = 1, jobs = 1, bytes = 10, queue = 'work', as = id, duplicate = false } = {}) => {
      outcomes.afterCommit(() => void reported.push(as), { id, queue, createdAt: at, duplicate, jobs, bytes })
    },
  }
  return made
}

describe('a report about a transaction of the user', () => {
  it('is made when its job is seen, and not before', async () => {
    const { clock, there, reported, add } = scene()
    add('a')
    await clock.advance(10_000)
    expect(reported).toEqual([])
    there.set('a', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['a'])
    await clock.advance(60_000)
    expect(reported).toEqual(['a'])
  })

  it('is made however long the transaction takes, after a number of reads that grows slowly', async () => {
    const { clock, there, reads, reported, add } = scene()
    add('a')
    await clock.advance(32_000)
    expect(reads.length).toBeLessThan(60)
    await clock.advance(10 * 3_600_000)
    expect(reads.length).toBeLessThan(150)
    there.set('a', 1)
    await clock.advance(2 * 3_600_000)
    expect(reported).toEqual(['a'])
  })

  it('keeps the process alive for 30 s, and not longer', async () => {
    const { clock, background, add } = scene()
    add('a')
    await clock.advance(29_000)
    expect(background).not.toContain(true)
    await clock.advance(2_000)
    expect(background.at(-1)).toBe(true)
    add('b')
    expect(background.at(-1)).toBe(false)
    await clock.advance(600_000)
    expect(background.at(-1)).toBe(true)
  })

  it('keeps it alive also where an older one is looked for at that very moment', async () => {
    const { clock, background, ends, add } = scene()
    add('old')
    await clock.advance(40_000)
    const next = ends.at(-1)!
    await clock.advance(next - clock.runtime.elapsed() - 1)
    expect([background.at(-1), ends.at(-1)]).toEqual([true, next])
    add('young')
    expect([background.at(-1), ends.at(-1)]).toEqual([false, next])
  })

  it('is made when a claim gives its job, though no read finds it, and not for another job of the same id', async () => {
    const { clock, outcomes, reported, add } = scene()
    add('a', { at: 1 })
    await clock.advance(1_000)
    outcomes.claimed([job('b', 1), job('a', 2)])
    expect(reported).toEqual([])
    outcomes.claimed([job('a', 1)])
    expect(reported).toEqual(['a'])
    outcomes.claimed([job('a', 1)])
    await clock.advance(60_000)
    expect(reported).toEqual(['a'])
  })

  it('is not made for another job of the same id', async () => {
    const { clock, there, reported, add } = scene()
    add('a', { at: 1 })
    there.set('a', 2)
    await clock.advance(60_000)
    expect(reported).toEqual([])
  })

  it('is dropped when a job of the same id could be added again', async () => {
    const { clock, there, reported, add } = scene()
    add('a', { as: 'first' })
    add('a', { as: 'second' })
    there.set('a', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['second'])
  })

  it('of a duplicate goes with that of the job that stands, and not with one that was rolled back', async () => {
    const { clock, there, reported, add } = scene()
    add('a', { as: 'rolled back', at: 1 })
    add('a', { as: 'stands', at: 2, duplicate: true })
    add('a', { as: 'stands as well', at: 2, duplicate: true })
    there.set('a', 2)
    await clock.advance(1_000)
    expect(reported).toEqual(['stands', 'stands as well'])
  })

  it('survives reads that fail, and is dropped when the store was closed', async () => {
    const made = scene()
    made.add('a')
    made.failure = new Error('away')
    await made.clock.advance(5_000)
    made.failure = undefined
    made.there.set('a', 1)
    await made.clock.advance(2_000)
    expect(made.reported).toEqual(['a'])
    made.add('b')
    made.failure = new MillraceError('STORE_CLOSED', 'closed')
    await made.clock.advance(1_000)
    const { length } = made.reads
    await made.clock.advance(60_000)
    expect([made.reads.length, made.reported]).toEqual([length, ['a']])
  })

  it('that throws does not keep others back', async () => {
    const { clock, outcomes, there, reported, add } = scene()
    outcomes.afterCommit(() => expect.unreachable(), {
      id: 'a',
      queue: 'work',
      createdAt: 1,
      duplicate: false,
      jobs: 1,
      bytes: 10,
    })
    add('b')
    there.set('a', 1).set('b', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['b'])
  })
})

describe('reports that are held', () => {
  it('are about 10000 jobs at most: the oldest are dropped, and one call may be larger', async () => {
    const { clock, there, reported, add } = scene()
    add('old', { jobs: 9_000 })
    add('large', { jobs: 20_000 })
    there.set('old', 1).set('large', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['large'])
    for (let at = 0; at < 10_100; at++) add(`n${at}`)
    there.set('n99', 1).set('n100', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['large', 'n100'])
  })

  it('are about 8 MiB of ids and names at most: the oldest are dropped, and one call may be larger', async () => {
    const { clock, there, reported, add } = scene()
    add('old', { bytes: 5 * 2 ** 20 })
    add('young', { bytes: 3 * 2 ** 20 })
    add('last', { bytes: 1 })
    there.set('old', 1).set('young', 1).set('last', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['young', 'last'])
    add('large', { bytes: 20 * 2 ** 20 })
    there.set('large', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['young', 'last', 'large'])
  })

  it('are looked for in portions, by one timer', async () => {
    const { clock, reads, add } = scene()
    for (let at = 0; at < 50; at++) add(`n${at}`)
    await clock.advance(6)
    expect(reads).toEqual([20, 20, 10])
  })

  it('of a queue that is closed are looked for once more, and then dropped', async () => {
    const { clock, outcomes, there, reads, reported, add } = scene()
    add('there')
    add('gone')
    add('other', { queue: 'other' })
    there.set('there', 1)
    await outcomes.leave('work')
    expect([reported, reads]).toEqual([['there'], [2]])
    there.set('gone', 1).set('other', 1)
    await clock.advance(1_000)
    expect(reported).toEqual(['there', 'other'])
  })
})
