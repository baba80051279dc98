// What a batch weighs: the text that users put into it, of whatever kind.
import { describe, expect, it } from 'vitest'
import type { Move, Note } from '../../src/job/change.js'
import { insert, put } from '../../src/store/conformance/making.js'
import { Lane } from '../../src/store/batcher.js'
import { bytesOf, portionsOf, weightOf } from '../../src/store/weight.js'
import { ManualRuntime, ScriptedStore, group } from './lane-helpers.js'

const move: Move = {
  ...{ kind: 'move', id: 'a', fence: 1, to: 'completed', held: true, place: 'old', why: undefined },
  closesBroken: false,
  set: {},
}
const note: Note = { kind: 'note', id: 'a', fence: 1, held: true }

describe('the bytes of a group', () => {
  it('are those of data, results, progress, log lines and cells', () => {
    expect(bytesOf([insert('a', 'n', { data: '12345' })])).toBe(7)
    expect(bytesOf([insert('a', 'n')])).toBe(0)
    expect(bytesOf([{ ...move, set: { result: '123', data: '45' } }])).toBe(5)
    expect(
      bytesOf([
        { ...move, set: { data: null } },
        { kind: 'release', chain: 'a', outcome: 'completed' },
      ]),
    ).toBe(0)
    expect(bytesOf([{ ...note, progress: '12', data: '3', logs: ['45', '6'] }])).toBe(6)
    expect(bytesOf([put('key', '1234', 0), note])).toBe(6)
  })

  it('are counted beside its changes, of which releases are none', () => {
    expect(weightOf([move, { kind: 'release', chain: 'a', outcome: 'completed' }])).toBe(1)
    expect(weightOf([{ kind: 'release', chain: 'a', outcome: 'completed' }])).toBe(1)
    expect(weightOf(group('a', 'b'))).toBe(2)
  })
})

describe('portions', () => {
  const sized = (id: string, size: number): Note[] => [{ ...note, id, progress: '1'.repeat(size) }]
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
    const lane = new Lane(store, runtime, 'w1', { bytes: 10 })
    const said = (id: string, progress: string, logs: string[] = []): Note => ({ ...note, id, progress, logs })
    const groups = [
      [said('a', '1234')],
      [said('b', '1'), said('c', '2', ['345', '67'])], // eleven with what stands before it
      [said('d', '123')],
      [said('e', '12345678901')],
      [said('f', '1')],
      [said('g', '2')],
    ]
    for (const each of groups) void lane.commit(each)
    for (let batches = 0; batches < 4; batches++) {
      await runtime.proceed()
      store.last.land()
    }
    expect(store.ids).toEqual([['a'], ['b', 'c', 'd'], ['e'], ['f', 'g']])
  })
})
