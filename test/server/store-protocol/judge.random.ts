// Random batches for the judge: valid ones of every role, and the same with one or more values replaced.
import { create, move } from '../../../src/job/change.js'
import { end } from '../../../src/job/moves.js'
import type { Change } from '../../../src/job/change.js'
import type { JobRecord } from '../../../src/job/job.js'
import type { Batch } from '../../../src/store/batch.js'
import { exactText, valueOf } from '../../../src/store/wire/exact-json.js'

/** Numbers in [0, 1) from a seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** What there is to aim at. */
export interface Targets {
  readonly random: () => number
  /** The token that sends. */
  readonly token: string
  /** All jobs of the store, those out of its reach included. */
  readonly jobs: readonly JobRecord[]
  readonly queues: readonly string[]
  seq(): number
}

const pick = <T>(random: () => number, from: readonly T[]): T => from[Math.floor(random() * from.length)]!

/** A job: every other time one that the token holds, if there is any. */
function aim({ random, jobs, token }: Targets): JobRecord {
  const own = random() < 0.6 ? jobs.filter(({ worker }) => worker?.startsWith(`${token}/`)) : []
  return pick(random, own.length > 0 ? own : jobs)
}

/** A change as the library makes it. */
function change(targets: Targets, made: string): readonly Change[] {
  const { random, queues } = targets
  const job = aim(targets)
  switch (Math.floor(random() * 9)) {
    case 0:
    case 1: {
      const queue = random() < 0.6 ? queues[0]! : pick(random, queues)
      const other = random()
      return [
        create({
          id: made,
          kind: 'job',
          queue,
          name: 'send',
          version: 1,
          data: '{"new":true}',
          priority: 0,
          lifo: false,
          attempts: 3,
          backoff: undefined,
          timeout: undefined,
          run: random() < 0.2 ? { in: 1_000 } : undefined,
          parentId: other < 0.1 ? job.id : undefined,
          group: random() < 0.2 ? 'g' : undefined,
          dedup: random() < 0.2 ? { key: JSON.stringify([queue, 'k']) } : undefined,
          keep: undefined,
          extras: undefined,
          edges: other > 0.8 ? [{ on: job.id, policy: 'fail' }] : [],
        }),
      ]
    }
    case 2:
      return end(job, 'completed', { result: '1' }, { held: true })
    case 3:
      return [{ kind: 'note', id: job.id, fence: job.fence, held: true, progress: '2', logs: ['a line'] }]
    case 4:
      return [move(job, 'waiting', { held: true, set: { attempt: 0 } })]
    case 5:
      return [move(job, pick(random, ['cancelled', 'removed', 'waiting', 'failed'] as const), { held: random() < 0.3 })]
    case 6:
      return [{ kind: 'release', chain: job.chainId, outcome: 'completed' }]
    case 7: {
      const key = pick(random, ['pause:', 'limit:', 'retention:', 'worker:', 'x']) + pick(random, queues)
      return [{ kind: 'put', key, value: '{"all":true,"names":[]}', version: 0, events: [] }]
    }
    default:
      return [{ kind: 'note', id: job.id, fence: job.fence, held: false, data: '"forged"' }]
  }
}

/** A batch of valid shape. */
export function randomBatch(targets: Targets): Batch {
  const { random, queues, token } = targets
  const seq = targets.seq()
  const groups = Array.from({ length: Math.floor(random() * 3) }, (_, group) => {
    const parts = random() < 0.7 ? 1 : 2
    return Array.from({ length: parts }, (__, at) => change(targets, `made-${token}-${seq}-${group}-${at}`)).flat()
  })
  const job = aim(targets)
  const renewals = random() < 0.2 ? [{ id: job.id, fence: job.fence, lease: 60_000, started: true }] : []
  const worker = random() < 0.9 ? `${token}/w` : 'victim/w'
  const handles = [{ name: undefined, lease: 60_000 }]
  const asks = random() < 0.2 ? [{ worker, queues: [pick(random, queues)], handles, want: 1, ahead: 0 }] : []
  return { writer: 'w', seq, groups, renewals, asks }
}

const nasty: readonly unknown[] = [
  null,
  undefined,
  NaN,
  Infinity,
  -1,
  1.5,
  0,
  '',
  '{oops',
  'x',
  true,
  [],
  {},
  { __proto__: null },
  '\u0000',
  '\ud800',
  'millrace:webhooks',
  'waiting',
  'removed',
  'completed',
  2 ** 60,
  [[]],
]

/** The same batch with values replaced, fields added and fields taken away. */
export function mutated(batch: Batch, { random, jobs, queues, token }: Targets): unknown {
  const copy = valueOf(exactText(batch)) as Batch
  for (let times = 1 + Math.floor(random() * 2); times > 0; times--) {
    const places: (readonly [object, string])[] = []
    const walk = (value: unknown): void => {
      if (typeof value !== 'object' || value === null) return
      for (const key of Object.keys(value)) {
        places.push([value, key])
        walk((value as Record<string, unknown>)[key])
      }
    }
    walk(copy)
    const [target, key] = pick(random, places.slice(2).length > 0 ? places.slice(2) : places)
    const job = pick(random, jobs)
    const aimed = [job.id, job.fence, job.chainId, pick(random, queues), `${token}/w`, 'victim/w', true, false]
    const value = random() < 0.5 ? pick(random, nasty) : pick<unknown>(random, aimed)
    const how = random()
    if (how < 0.05) Reflect.deleteProperty(target, key)
    else if (how < 0.1) Object.assign(target, { surprise: value })
    else (target as Record<string, unknown>)[key] = value
  }
  return copy
}
