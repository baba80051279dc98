// Each row of the table of rights, sent with each role.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { create, move } from '../../../src/job/change.js'
import type { Change } from '../../../src/job/change.js'
import { drop, replace } from '../../../src/job/lifecycle.js'
import type { JobRecord } from '../../../src/job/job.js'
import { end } from '../../../src/job/moves.js'
import { rights } from '../../../src/server/store-protocol/rights.js'
import type { Batch } from '../../../src/store/batch.js'
import { freshPut } from '../../../src/store/series/series-cells.js'
import { closing } from '../../setup.js'
import { protocolWorld, spec } from './world.js'
import type { ProtocolWorld, TokenName } from './world.js'

const who = { read: 'reader', produce: 'producer', work: 'worker', admin: 'operator' } as const

let seq = 0
const send = (store: Store, batch: Partial<Batch>) =>
  store.commit({ writer: 'rights', seq: ++seq, groups: [], renewals: [], asks: [], ...batch })

/** A row: what is set up with the store itself, and what is sent. `holder` is whose worker holds the job `held`. */
interface Row {
  readonly sent: (store: Store, world: ProtocolWorld, holder: string) => Promise<unknown>
}

/** Sends one group; fails as a caller would see it. */
async function group(store: Store, changes: readonly Change[]): Promise<void> {
  const [verdict] = (await send(store, { groups: [changes] })).groups
  if (!verdict!.ok) throw new Error(`refused: ${verdict!.why}`)
}

/** A job in the queue, added on the store itself. */
async function added(world: ProtocolWorld, fields: Partial<Parameters<typeof create>[0]> = {}): Promise<JobRecord> {
  const insert = create({ ...spec, id: `job-${++seq}`, ...fields })
  const [verdict] = (await send(world.store, { groups: [[insert]] })).groups
  if (!verdict!.ok) throw new Error('not added')
  return verdict!.inserted[0]!
}

/** A job that a worker holds. */
async function held(world: ProtocolWorld, worker: string): Promise<JobRecord> {
  await added(world)
  const handles = [{ name: undefined, lease: 60_000 }]
  return (await send(world.store, { asks: [{ worker, queues: ['mail'], handles, want: 1, ahead: 0 }] })).asks[0]![0]!
}

const put = (key: string, value: string) => ({ kind: 'put', key, value, version: 0, events: [] }) as const

const rows: Readonly<Record<keyof typeof rights, Row>> = {
  get: {
    async sent(store, world) {
      const { id } = await added(world)
      expect((await store.get([id]))[0]?.id).toBe(id)
      await store.details({ jobs: [id], cells: ['pause:mail'] })
      await store.due({ queues: ['mail'], except: [], limit: 1 })
    },
  },
  find: {
    async sent(store) {
      await store.find({ queue: 'mail' })
      await store.tally(['mail'])
    },
  },
  insert: {
    async sent(store, world) {
      const { id } = await added(world)
      const parent = create({ ...spec, id: `p-${++seq}`, edges: [{ on: id, policy: 'fail' }] })
      await group(store, [parent, create({ ...spec, id: `c-${seq}`, parentId: parent.job.id })])
    },
  },
  child: {
    async sent(store, world, holder) {
      const { id } = await held(world, holder)
      await group(store, [create({ ...spec, id: `child-${++seq}`, parentId: id })])
    },
  },
  replace: {
    async sent(store, world) {
      const job = await added(world, { dedup: { key: JSON.stringify(['mail', `k-${seq}`]) }, run: { in: 60_000 } })
      const by = create({ ...spec, id: 'x', data: '2', run: { in: 5 } }).job
      await group(store, replace(job, by) as readonly Change[])
    },
  },
  drop: {
    async sent(store, world) {
      const limit = JSON.stringify({ by: 'queue', group: { backlog: 1, whenFull: 'drop-oldest' } })
      const { cells } = await world.store.details({ cells: ['limit:mail'] })
      await send(world.store, { groups: [[{ ...put('limit:mail', limit), version: cells[0]?.version ?? 0 }]] })
      const whose = `g-${++seq}`
      const job = await added(world, { group: whose })
      await group(store, [...drop(job), create({ ...spec, id: `new-${seq}`, group: whose })])
    },
  },
  signal: {
    async sent(store, world) {
      const { id } = await added(world)
      expect(await closing(new Queue('mail', { store, logger: false })).signal(id, 'go')).toBe(true)
    },
  },
  counts: { sent: (store) => group(store, [freshPut('mail', 1, String(++seq), new Map())]) },
  claim: {
    async sent(store, world, holder) {
      await added(world)
      const handles = [{ name: undefined, lease: 60_000 }]
      const { asks } = await send(store, { asks: [{ worker: holder, queues: ['mail'], handles, want: 1, ahead: 0 }] })
      expect(asks[0]).toHaveLength(1)
    },
  },
  renew: {
    async sent(store, world, holder) {
      const { id, fence } = await held(world, holder)
      const { renewals } = await send(store, { renewals: [{ id, fence, lease: 1_000, started: true }] })
      if (!renewals[0]!.ok) throw new Error(`refused: ${renewals[0]!.why}`)
    },
  },
  settle: {
    async sent(store, world, holder) {
      await group(store, end(await held(world, holder), 'completed', { result: '1' }, { held: true }))
    },
  },
  note: {
    async sent(store, world, holder) {
      const { id, fence } = await held(world, holder)
      await group(store, [{ kind: 'note', id, fence, held: true, progress: '1', logs: ['a'], steps: [] }])
    },
  },
  entry: {
    async sent(store, _world, holder) {
      const id = `${holder}-${++seq}`
      await group(store, [put(`worker:${id}`, JSON.stringify({ id, queues: ['mail'] }))])
    },
  },
  seed: {
    async sent(store, world) {
      const { cells } = await world.store.details({ cells: ['limit:mail'] })
      for (const { key, version } of cells) {
        await send(world.store, { groups: [[{ kind: 'put', key, value: undefined, version, events: [] }]] })
      }
      await group(store, [put('limit:mail', '{"concurrency":3,"by":"worker"}')])
    },
  },
  schedule: {
    async sent(store) {
      const queue = closing(new Queue('mail', { store, logger: false }))
      await queue.schedule(`daily-${++seq}`, { every: '1d', name: 'send' })
    },
  },
  move: {
    async sent(store, world) {
      await group(store, [move(await added(world), 'removed')])
      const { id, fence } = await added(world)
      await group(store, [{ kind: 'note', id, fence, held: false, data: '2' }])
    },
  },
  settings: { sent: (store) => group(store, [put(`retention:mail`, '{}')]) },
}

/** Whether what was sent was applied. */
async function passes(row: Row, token: TokenName, holder: string): Promise<boolean> {
  const world = await protocolWorld()
  try {
    await row.sent(world.remote(token), world, holder)
    return true
  } catch (error) {
    const { code, message } = error as { readonly code?: unknown; readonly message: string }
    if (code === 'FORBIDDEN' || /^refused: (fence|missing)$/.test(message)) return false
    throw error
  }
}

describe.each(Object.keys(rights) as (keyof typeof rights)[])('%s', (name) => {
  for (const [role, may] of Object.entries(rights[name].may)) {
    const token = who[role as keyof typeof who]
    it(`${role}: ${may}`, async () => {
      expect(await passes(rows[name], token, `${token}/w`)).toBe(may !== 'no')
    })
    if (may !== 'held' && may !== 'own') continue
    it(`${role}: not of another token`, async () => {
      expect(await passes(rows[name], token, 'other/w')).toBe(false)
    })
  }
})
