// Random batches, made to fit the table they are for: mostly right fences and versions, few ids, so that much happens.
import * as fc from 'fast-check'
import type { Change, When } from '../../../src/job/change.js'
import type { Ask, Group, Renewal } from '../../../src/store/store.js'
import type { Table } from '../../../src/stores/memory/table.js'
import { asking, insert, LEASE, limit, pause } from './table.making.js'

const queues = ['mill', 'farm']
const names = ['grind', 'sift', 'pack', 'haul', 'weigh']

/** The table a group is for, and what the changes before this one in the group come to. */
class Moment {
  readonly #table: Table
  readonly #ids: string[]
  readonly #ups = new Map<string, number>()

  constructor(table: Table) {
    this.#table = table
    this.#ids = [...table.rows.keys()]
  }

  /** One of the jobs there are, or of those inserted earlier in the group. */
  id(pick: number): string {
    return this.#ids.length === 0 ? 'nobody yet' : this.#ids[pick % this.#ids.length]!
  }

  /** An id that is new. */
  newId(): string {
    const id = `j${this.#table.seq + this.#ids.length}`
    this.#ids.push(id)
    return id
  }

  /** The fence that a job will have by now; each move raises it. */
  fence(id: string): number {
    return (this.#table.rows.get(id)?.job.fence ?? 0) + (this.#ups.get(id) ?? 0)
  }

  /** The version that a cell will have by now; each put raises it. */
  version(key: string): number {
    return (this.#table.cells.get(key)?.version ?? 0) + (this.#ups.get(key) ?? 0)
  }

  raise(what: string): void {
    this.#ups.set(what, (this.#ups.get(what) ?? 0) + 1)
  }

  isActive(id: string): boolean {
    return this.#table.rows.get(id)?.job.state === 'active'
  }
}

/** A change that is yet to be given the ids, fence or version of the moment. */
export type Plan = (moment: Moment) => Change

/** One of the jobs there are. */
const pick = fc.nat(1_000)
const queue = fc.constantFrom(...queues)
const name = fc.constantFrom(...names)
const weighed = <T>(arbitrary: fc.Arbitrary<T>, weight: number): fc.Arbitrary<T | undefined> =>
  fc.oneof({ arbitrary: fc.constant(undefined), weight: 10 - weight }, { arbitrary, weight })
const maybe = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => weighed(arbitrary, 4)
const rarely = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => weighed(arbitrary, 1)
/** Mostly 0, the right one. */
const off = fc.oneof(
  { arbitrary: fc.constant(0), weight: 9 },
  { arbitrary: fc.integer({ min: -1, max: 1 }), weight: 1 },
)
const when: fc.Arbitrary<When> = fc.oneof(
  fc.record({ in: fc.constantFrom(0, 10, 50_000) }),
  fc.record({ at: fc.constantFrom(0, 1_000_500, 2_000_000) }),
)
const edge = fc.record({ on: pick, policy: fc.constantFrom('fail', 'ignore', 'remove') })
const dedup = fc.record({ key: fc.constantFrom('k1', 'k2'), window: maybe(fc.constantFrom(5, 40_000)) })

const inserts: fc.Arbitrary<Plan> = fc
  .record({
    again: rarely(pick),
    kind: fc.constantFrom('job', 'job', 'job', 'job', 'schedule' as const),
    queue,
    name,
    version: fc.constantFrom(1, 2),
    priority: fc.integer({ min: -1, max: 1 }),
    lifo: fc.boolean(),
    run: maybe(when),
    edges: fc.array(edge, { maxLength: 3 }),
    dedup: maybe(dedup),
    parentId: maybe(pick),
    chain: maybe(fc.record({ id: pick, index: fc.integer({ min: 1, max: 3 }) })),
  })
  .map(({ again, chain, parentId, edges, ...spec }): Plan => {
    return (moment) => {
      const over = {
        ...spec,
        parentId: parentId === undefined ? undefined : moment.id(parentId),
        edges: edges.map(({ on, policy }) => ({ on: moment.id(on), policy })),
      }
      const first = chain === undefined ? undefined : { id: moment.id(chain.id), index: chain.index }
      return insert(again === undefined ? moment.newId() : moment.id(again), over, first)
    }
  })

const fields = fc.record(
  {
    attempt: fc.nat(3),
    stalls: fc.nat(2),
    run: fc.option(when, { nil: null }),
    data: fc.constantFrom('1', '2', null),
    priority: fc.integer({ min: -1, max: 1 }),
    result: fc.constant('"done"'),
    error: fc.constantFrom(null, { name: 'Error', message: 'boom' }),
    staleIn: fc.constantFrom(5, 100),
    deleteIn: fc.constantFrom(0, 50),
    stale: fc.constant(true as const),
  },
  { requiredKeys: [] },
)

const moves: fc.Arbitrary<Plan> = fc
  .record({
    pick,
    to: fc.constantFrom(
      ...([
        'waiting',
        'delayed',
        'waiting-children',
        'completed',
        'failed',
        'cancelled',
        'removed',
        'removed',
      ] as const),
    ),
    held: fc.boolean(),
    reaps: rarely(fc.constant(true as const)),
    place: fc.constantFrom('old', 'new'),
    why: maybe(fc.constantFrom('retrying', 'stalled', 'stale' as const)),
    closesBroken: fc.boolean(),
    set: fields,
    off,
  })
  .map(({ pick, off, held, ...change }): Plan => {
    return (moment) => {
      const id = moment.id(pick)
      const fence = moment.fence(id) + off
      moment.raise(id)
      return { kind: 'move', id, ...change, held: held && moment.isActive(id), fence }
    }
  })

const notes: fc.Arbitrary<Plan> = fc
  .record({ pick, off, progress: maybe(fc.constant('5')), data: maybe(fc.constant('6')), logs: maybe(fc.array(name)) })
  .map(({ pick, off, ...noted }): Plan => {
    return (moment) => {
      const id = moment.id(pick)
      return { kind: 'note', id, ...noted, held: false, fence: moment.fence(id) + off }
    }
  })

const releases: fc.Arbitrary<Plan> = fc
  .record({ pick, outcome: fc.constantFrom('completed', 'failed', 'cancelled' as const) })
  .map(({ pick, outcome }): Plan => {
    return (moment) => ({ kind: 'release', chain: moment.id(pick), outcome })
  })

const bound = maybe(fc.integer({ min: 0, max: 3 }))
const puts: fc.Arbitrary<Plan> = fc
  .oneof(
    fc.record({ concurrency: bound, backlog: maybe(fc.integer({ min: 2, max: 9 })), grind: bound }).map((cell) => {
      const { grind, ...rest } = cell
      return limit({ ...rest, names: grind === undefined ? {} : { grind: { concurrency: grind } } })
    }),
    fc.record({ all: fc.boolean(), names: fc.subarray(names) }).map((cell) => pause(cell)),
  )
  .chain((put) => fc.record({ put: fc.constant(put), off, gone: fc.boolean() }))
  .map(({ put, off, gone }): Plan => {
    return (moment) => {
      const version = moment.version(put.key) + off
      moment.raise(put.key)
      return { ...put, version, value: gone && off === 0 && version > 0 ? undefined : put.value }
    }
  })

const plan: fc.Arbitrary<Plan> = fc.oneof(
  { arbitrary: inserts, weight: 6 },
  { arbitrary: moves, weight: 6 },
  { arbitrary: notes, weight: 2 },
  { arbitrary: releases, weight: 3 },
  { arbitrary: puts, weight: 1 },
)

/** A group of changes. */
export const plans: fc.Arbitrary<readonly Plan[]> = fc.array(plan, { minLength: 1, maxLength: 5 })

/** Gives changes the fences and versions that stand in the table now, counting those before them in the group. */
export function planned(table: Table, group: readonly Plan[]): Group {
  const moment = new Moment(table)
  return group.map((change) => change(moment))
}

/** An ask. */
export const ask: fc.Arbitrary<Ask> = fc
  .record({
    queues: fc.subarray(queues, { minLength: 1 }),
    handles: fc.constantFrom<Ask['handles']>(
      [{ name: undefined, lease: LEASE }],
      [
        { name: 'grind', versions: [2], lease: 10 },
        { name: undefined, lease: LEASE },
      ],
      [
        { name: 'sift', lease: LEASE },
        { name: 'pack', versions: [1], lease: 10 },
      ],
    ),
    want: fc.nat(2),
    ahead: fc.nat(2),
  })
  .map(({ want, ...rest }) => asking(want, rest))

/** A renewal of a job that may be leased, or may have been. */
export const renewal: fc.Arbitrary<(table: Table) => Renewal> = fc
  .record({ pick, lease: fc.constantFrom(0, LEASE), started: fc.boolean(), off: fc.integer({ min: -1, max: 0 }) })
  .map(({ pick, off, ...rest }) => (table: Table) => {
    const moment = new Moment(table)
    const id = moment.id(pick)
    return { id, ...rest, fence: moment.fence(id) + off }
  })
