// A batch that is sent to three stores: PostgreSQL as it is, PostgreSQL made to go the long way, and memory. They must agree.
import { Client, Pool } from 'pg'
import { expect, onTestFinished } from 'vitest'
import { ask, Driver } from '../../../src/conformance/driver.js'
import type { ClaimOptions, Parts } from '../../../src/conformance/driver.js'
import { insert } from '../../../src/conformance/changes.js'
import type { JobOptions } from '../../../src/conformance/changes.js'
import type { JobRecord } from '../../../src/job/job.js'
import { memory } from '../../../src/memory.js'
import { postgres } from '../../../src/postgres.js'
import type { Ask, Group, Receipt, Store } from '../../../src/store/store.js'
import type { StoreEvent } from '../../../src/job/events.js'
import { steppedClock } from '../../conformance/clock.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'

/** A store whose calls are seen, and whose answers can be lost. */
interface Seen {
  readonly store: Store
  /** The functions that batches were sent to, since last asked. */
  ways(): readonly string[]
  /** The next answer of this function is lost. */
  lose(name: string): void
}

export interface Scene {
  readonly url: string
  readonly schema: string
  readonly short: Seen
  /** All three, this one first. */
  readonly stores: readonly Store[]
  /** Another process on the same schema. */
  other(): Store
  advance(ms: number): Promise<void>
  /** Inserts of as many jobs, whose ids were made by the store. */
  jobs(count: number, name: string, options?: JobOptions | ((n: number) => JobOptions)): readonly Group[]
  /** Sends a batch to all three, and answers its receipt; they must agree, and then stand the same. */
  send(parts: Parts): Promise<Receipt>
  claim(want: number, options?: ClaimOptions): Promise<readonly JobRecord[]>
  /** Sends it in vain, and again, to the store with short ways; to the others once. */
  sendTwice(parts: Parts, lost: string): Promise<Receipt>
}

const writes = new Set(['add_one', 'add_shared', 'add_many', 'fast_complete', 'fast_claim', 'fast_commit', 'commit'])

/** The SQL function that a statement calls. */
const functionIn = (text: string): string => /"\.(\w+)_v\d+\(/.exec(text)?.[1] ?? ''

/** A pool on which no working set is predicted: every prediction is refused as wrong. */
function unpredictable(url: string): Pool {
  class Refusing extends Client {
    override query(...args: unknown[]): never {
      const [{ text = '' }] = args as [{ text?: string }]
      if (functionIn(text) !== 'fast_commit') {
        return (super.query as (...args: unknown[]) => unknown).apply(this, args) as never
      }
      return Promise.reject(Object.assign(new Error('refused'), { code: 'MR006', severity: 'ERROR' })) as never
    }
  }
  const pool = new Pool({ connectionString: url, max: 4, Client: Refusing })
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  return pool
}

function seen(url: string, open: (pool: Pool) => Store): Seen {
  const called: string[] = []
  let losing: string | undefined
  class Spy extends Client {
    override query(...args: unknown[]): never {
      const [{ text = '' }] = args as [{ text?: string }]
      const what = functionIn(text)
      if (writes.has(what)) called.push(what)
      const answer = (super.query as (...args: unknown[]) => Promise<unknown>).apply(this, args)
      if (losing !== what) return answer as never
      losing = undefined
      return answer.then(() => Promise.reject(new Error('lost'))) as never
    }
  }
  const pool = new Pool({ connectionString: url, max: 4, Client: Spy })
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  return { store: open(pool), ways: () => called.splice(0), lose: (name) => void (losing = name) }
}

/** What must be the same everywhere: all but places, which each store chooses, and who asked. */
function plain(receipt: Receipt): unknown {
  const { now, groups, renewals, asks } = receipt
  return JSON.parse(JSON.stringify({ now, groups, renewals, asks }, (key, value) => (key === 'ord' ? 0 : value)))
}

/** The same ask, as the short way does not take it. */
function named(each: Ask): Ask {
  return {
    ...each,
    handles: each.handles.flatMap((handled) => [handled, { ...handled, versions: handled.versions ?? [1] }]),
  }
}

async function everything(store: Store): Promise<unknown> {
  const { items } = await store.find({ limit: 10_000 })
  const nonzero = (counts: object): object => Object.fromEntries(Object.entries(counts).filter(([, n]) => n !== 0))
  const tallies = (await store.tally()).map(({ queue, names, lifetime }) => {
    const states = Object.entries(names).map(([name, counts]) => [name, nonzero(counts)] as const)
    return [queue, [Object.fromEntries(states), lifetime]] as const
  })
  return JSON.parse(
    JSON.stringify({ items, tallies: Object.fromEntries(tallies) }, (key, value) => (key === 'ord' ? 0 : value)),
  )
}

export async function scene(): Promise<Scene> {
  const url = await sharedServer()
  const { runtime, advance } = steppedClock()
  const schema = newSchema()
  const on = (target: Pool | string, where: string): Store => {
    return closing(postgres(target as string, { schema: where, runtime, clock: () => runtime.now(), connections: 4 }))
  }
  const short = seen(url, (pool) => on(pool, schema))
  const sides = [short.store, on(unpredictable(url), newSchema()), closing(memory({ runtime }))] as const
  await Promise.all(sides.map((store) => store.open()))
  const drivers = sides.map((store) => new Driver(store, 'writer'))
  const [quick, slow, reference] = drivers as [Driver, Driver, Driver]

  const agree = async (receipt: Receipt, parts: Parts): Promise<Receipt> => {
    const expected = await reference.commit(parts)
    expect(plain(receipt)).toEqual(plain(expected))
    expect(plain(await slow.commit({ ...parts, asks: (parts.asks ?? []).map(named) }))).toEqual(plain(expected))
    const stands = await everything(reference.store)
    expect(await everything(slow.store)).toEqual(stands)
    expect(await everything(quick.store)).toEqual(stands)
    return receipt
  }
  const send: Scene['send'] = async (parts) => agree(await quick.commit(parts), parts)
  return {
    url,
    schema,
    short,
    stores: sides,
    other: () => on(url, schema),
    advance,
    jobs: (count, name, options = {}) =>
      Array.from({ length: count }, (_, n) => {
        return [insert(short.store.runtime!.id(), name, typeof options === 'function' ? options(n) : options)]
      }),
    send,
    claim: async (want, options = {}) => (await send({ asks: [ask(want, options)] })).asks[0]!,
    sendTwice: async (parts, lost) => {
      short.lose(lost)
      await expect(quick.commit(parts)).rejects.toThrow('lost')
      return agree(await quick.replay(), parts)
    },
  }
}

/** Events without their numbers, in one order: within a commit theirs is that in which rows are written. */
export function inOrder(events: readonly StoreEvent[]): readonly unknown[] {
  const key = ({ at, type, id, queue }: StoreEvent): string => JSON.stringify([at, type, queue, id])
  const sorted = events.toSorted((a, b) => (key(a) < key(b) ? -1 : 1))
  return JSON.parse(JSON.stringify(sorted, (name, value) => (name === 'cursor' ? undefined : value))) as unknown[]
}
