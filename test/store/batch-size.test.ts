// What a batch weighs: the text that users put into it, of whatever kind.
import { describe, expect, it } from 'vitest'
import type { Change, Move, MoveFields, NewEdge, NewJob, Note } from '../../src/job/change.js'
import type { ErrorInfo } from '../../src/job/job.js'
import { Batcher } from '../../src/store/batcher.js'
import { bytesOf, bytesOfAsk, bytesOfRenewals, portionsOf, weightOf } from '../../src/store/batch-size.js'
import { ManualRuntime, ScriptedStore, ask, group, renewals } from './manual-store.js'

const move: Move = {
  ...{ kind: 'move', id: 'a', fence: 1, to: 'completed', held: true, place: 'old', why: undefined },
  closesBroken: false,
  set: {},
}
const note: Note = { kind: 'note', id: 'a', fence: 1, held: true }

/** A text of its own length for each field, so that one that is left out is missed. */
let written = 0
const text = (): string => {
  const length = 1_000 + written++ * 7
  return 'x'.repeat(length)
}
const all = (value: unknown): number => {
  if (typeof value === 'string') return value.startsWith('xx') ? value.length : 0
  if (typeof value !== 'object' || value === null) return 0
  return Object.values(value).reduce((sum: number, each) => sum + all(each), 0)
}

describe('the bytes of a group', () => {
  const errorInfo = (): ErrorInfo => ({ name: text(), message: text(), code: text(), stack: text() })
  const edge = (): NewEdge => ({ on: text(), policy: 'fail' })
  // `Required`, so that a new field does not compile here.
  const job: Required<NewJob> = {
    ...{
      id: text(),
      kind: 'job',
      queue: text(),
      name: text(),
      version: 1,
      data: text(),
      state: 'waiting',
      priority: 0,
    },
    ...{
      lifo: false,
      attempts: 3,
      backoff: { type: 'custom', name: text() },
      timeout: undefined,
      run: undefined,
      expires: { in: 1 },
    },
    ...{ chainId: text(), chainIndex: 0, parentId: text(), group: text(), dedup: { key: text() }, keep: undefined },
    extras: {
      phases: [text(), text()],
      webhook: { url: text(), on: ['completed'], attempts: 1, backoff: undefined, timeout: 1 },
      trace: text(),
    },
  }
  const set: Required<MoveFields> = {
    ...{
      attempt: 1,
      stalls: 0,
      run: null,
      expires: null,
      data: text(),
      priority: 1,
      result: text(),
      error: errorInfo(),
    },
    ...{ memo: text(), staleIn: 1, deleteIn: 1, stale: true },
  }
  const noteOf: Required<Note> = {
    ...{ kind: 'note', id: text(), fence: 1, held: true, progress: text(), data: text(), logs: [text(), text()] },
    ...{ memo: text(), steps: [{ name: text(), result: text() }], about: text() },
    events: [{ type: 'phase', about: text() }],
  }
  const changes: readonly Change[] = [
    { kind: 'insert', job, edges: [edge(), edge()] },
    { ...move, id: text(), set, waitsFor: [edge()] },
    noteOf,
    { kind: 'release', chain: text(), outcome: 'completed' },
    {
      ...{ kind: 'put', key: text(), value: text(), version: 0 },
      events: [{ type: 'paused', queue: text(), name: text(), worker: text() }],
    },
  ]

  it.each(changes.map((change) => [change.kind, change] as const))('are those of all text in it: %s', (_, change) => {
    expect(bytesOf([change])).toBeGreaterThanOrEqual(all(change))
    expect(bytesOf([change])).toBeLessThan(all(change) + 100)
  })

  it('are those of what is there', () => {
    expect(bytesOf([{ ...move, set: { result: '123', data: null, error: null } }])).toBe('a'.length + 3)
    expect(bytesOf([note, { ...note, logs: ['45', '6'] }])).toBe('aa'.length + 3)
  })

  it('are those of renewals and asks as well', () => {
    expect(bytesOfRenewals(renewals('ab', 'cde'))).toBe(5)
    expect(bytesOfAsk({ ...ask(1), handles: [{ name: 'abc', lease: 1 }] })).toBe('w1mill'.length + 3)
  })

  it('are counted beside its changes, of which releases are none', () => {
    expect(weightOf([move, { kind: 'release', chain: 'a', outcome: 'completed' }])).toBe(1)
    expect(weightOf([{ kind: 'release', chain: 'a', outcome: 'completed' }])).toBe(1)
    expect(weightOf(group('a', 'b'))).toBe(2)
  })
})

describe('portions', () => {
  const sized = (id: string, size: number): Note[] => [{ ...note, id, progress: '1'.repeat(size - id.length) }]
  const ids = (most: number, ...sizes: readonly number[]): string[] =>
    portionsOf(
      sizes.map((size, at) => sized(String(at), size)),
      most,
    ).map((portion) => portion.flatMap((each) => each.map((change) => ('id' in change ? change.id : ''))).join())

  it('hold as much as may be sent at once, in order, and what is larger goes alone', () => {
    expect(ids(10, 4, 6, 1, 11, 5, 5)).toEqual(['0,1', '2', '3', '4,5'])
  })

  it('are one where there is nothing', () => {
    expect(ids(10)).toEqual([''])
  })
})

describe('a batch', () => {
  it('holds at most `bytes` of what users wrote, and whole groups; a single larger one, alone', async () => {
    const [store, runtime] = [new ScriptedStore(), new ManualRuntime()]
    const lane = new Batcher(store, runtime, 'w1', { bytes: 10 })
    const noteOf = (id: string, progress: string, logs: string[] = []): Note => ({ ...note, id, progress, logs })
    const groups = [
      [noteOf('a', '123')],
      [noteOf('b', '1'), noteOf('c', '2', ['34', '5'])], // eleven with what stands before it
      [noteOf('d', '12')],
      [noteOf('e', '12345678901')],
      [noteOf('f', '1')],
      [noteOf('g', '2')],
    ]
    for (const each of groups) void lane.commit(each)
    for (let batches = 0; batches < 4; batches++) {
      await runtime.proceed()
      store.last.land()
    }
    expect(store.ids).toEqual([['a'], ['b', 'c', 'd'], ['e'], ['f', 'g']])
  })
})
