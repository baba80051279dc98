// No batch of a token changes or reveals a job outside its queues, or one that it does not hold; and none fails the batch of
// another token. MILLRACE_JUDGED sets how many random batches are judged (100,000 in nightly runs), MILLRACE_SEED the seed.
import { describe, expect, it } from 'vitest'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import type { JobRecord } from '../../../src/job/job.js'
import type { Batch } from '../../../src/store/batch.js'
import { wire } from '../../../src/store/wire/wire.js'
import { closing } from '../../setup.js'
import { create } from '../../../src/job/change.js'
import { mutated, randomBatch, seeded } from './judge.random.js'
import type { Targets } from './judge.random.js'
import { protocolWorld, spec } from './world.js'
import type { TokenName } from './world.js'

const BATCHES = Number(process.env['MILLRACE_JUDGED'] ?? 5_000)
const SEED = Number(process.env['MILLRACE_SEED'] ?? 1)
/** Batches until the world is made anew. */
const A_WORLD = 60

/** Who sends; `victim` is a token whose jobs are aimed at. */
const senders = ['producer', 'worker', 'stranger', 'everywhere', 'operator'] as const satisfies readonly TokenName[]
const queuesOf: Readonly<Record<(typeof senders)[number], readonly string[]>> = {
  producer: ['mail'],
  worker: ['mail'],
  stranger: ['bills'],
  everywhere: ['mail', 'bills'],
  operator: ['mail'],
}

const SECRET = 'a secret of the '
/** A store in which jobs of both queues wait, are held by each token and by another, and have ended. */
async function populated(): Promise<Store> {
  const store = closing(memory())
  let seq = 0
  const commit = (batch: Partial<Batch>): Promise<unknown> =>
    store.commit({ writer: 'setup', seq: ++seq, groups: [], renewals: [], asks: [], ...batch })
  for (const queue of ['mail', 'bills']) {
    const data = JSON.stringify(SECRET + queue)
    const insert = (n: number) => [create({ ...spec, id: `${queue}-${n}`, queue, data })]
    await commit({ groups: Array.from({ length: 8 }, (_, n) => insert(n)) })
    for (const worker of ['victim/w', ...senders.map((token) => `${token}/w`)]) {
      const handles = [{ name: undefined, lease: 3_600_000 }]
      await commit({ asks: [{ worker, queues: [queue], handles, want: 1, ahead: 0 }] })
    }
  }
  return store
}

interface Snapshot {
  readonly jobs: ReadonlyMap<string, JobRecord>
  readonly cells: string
}

async function snapshot(store: Store): Promise<Snapshot> {
  const { items } = await store.find({ limit: 10_000 })
  const { cells } = await store.details({ cellsUnder: '' })
  return {
    jobs: new Map(items.map((job) => [job.id, job])),
    cells: JSON.stringify(cells.filter(({ key }) => !key.startsWith('worker:'))),
  }
}

/** What the end of a chain writes to the jobs that wait for it. */
const RELEASED = new Set(['state', 'pending', 'fence', 'brokenAt', 'dueAt', 'ord', 'runAt'])

/** A job that waited for one that ended, whoever may end that. */
function isReleased(old: JobRecord, job: JobRecord): boolean {
  const keys = (Object.keys(old) as (keyof JobRecord)[]).filter((key) => !RELEASED.has(key))
  const same = keys.every((key) => JSON.stringify(job[key]) === JSON.stringify(old[key]))
  return old.state === 'waiting-children' && same && ['waiting', 'delayed', old.state].includes(job.state)
}

/** Why a token may not have made this difference; undefined: it may. */
function breach(token: (typeof senders)[number], before: Snapshot, after: Snapshot): string | undefined {
  const mayChange = (queue: string): boolean =>
    token === 'everywhere' ? !queue.startsWith('millrace:') : queuesOf[token].includes(queue)
  if (token !== 'operator' && after.cells !== before.cells) {
    // The seed of a limit is what a worker may write.
    const seeded = JSON.parse(after.cells) as { readonly key: string }[]
    if (token === 'producer' || seeded.some(({ key }) => !key.startsWith('limit:'))) return 'cells were written'
  }
  for (const [id, job] of after.jobs) {
    const old = before.jobs.get(id)
    if (JSON.stringify(job) === JSON.stringify(old) || (old !== undefined && isReleased(old, job))) continue
    if (!mayChange(job.queue)) return `${id} of ${job.queue} was changed`
    if (old === undefined || token === 'operator') continue
    const claimed = old.state === 'waiting' && job.state === 'active' && job.worker?.startsWith(`${token}/`) === true
    const held = old.state === 'active' && old.worker?.startsWith(`${token}/`) === true
    if (token === 'producer' ? true : !claimed && !held) return `${id} was changed, which it did not hold`
  }
  for (const [id, { queue, worker }] of before.jobs) {
    if (after.jobs.has(id)) continue
    if (!mayChange(queue)) return `${id} of ${queue} was removed`
    if (token !== 'operator' && worker?.startsWith(`${token}/`) !== true) return `${id} was removed`
  }
  return undefined
}

describe('random batches', () => {
  it('change and reveal nothing that their token may not, and fail no neighbour', { timeout: 1_200_000 }, async () => {
    const random = seeded(SEED)
    const outcomes = new Map<number, number>()
    let landed = 0
    for (let judged = 0; judged < BATCHES;) {
      const store = await populated()
      const { server, tokens } = await protocolWorld(store)
      let seq = 0
      for (let at = 0; at < A_WORLD && judged < BATCHES; at++, judged++) {
        const before = await snapshot(store)
        const token = senders[Math.floor(random() * senders.length)]!
        const targets: Targets = {
          random,
          token,
          jobs: [...before.jobs.values()],
          queues: [queuesOf[token][0]!, 'mail', 'bills', 'millrace:webhooks'],
          seq: () => ++seq,
        }
        const valid = randomBatch(targets)
        const batch = random() < 0.5 ? valid : (mutated(valid, targets) as Batch)
        let body: string
        try {
          body = wire.commit.request.encode(batch)
        } catch {
          continue // no client could send that
        }
        const send = (who: string, text: string): Promise<Response> =>
          server.fetch(
            new Request(`${server.url}/v1/store/commit`, {
              method: 'POST',
              headers: {
                authorization: `Bearer ${tokens.get(who)!}`,
                'content-type': 'application/json',
                'millrace-protocol': '1',
              },
              body: text,
            }),
          )
        const note = wire.commit.request.encode({
          writer: 'neighbour',
          seq: ++seq,
          groups: [[{ kind: 'put', key: `worker:neighbour-${seq}`, value: '1', version: 0, events: [] }]],
          renewals: [],
          asks: [],
        })
        const [response, neighbour] = await Promise.all([send(token, body), send('admin', note)])
        const [text, beside] = [await response.text(), await neighbour.text()]
        const about = `seed ${SEED}, batch ${judged} of ${token}: ${body} -> ${response.status} ${text}`
        outcomes.set(response.status, (outcomes.get(response.status) ?? 0) + 1)
        expect([200, 400, 403, 409], about).toContain(response.status)
        expect(wire.commit.answer.decode(beside).groups[0]?.ok, `beside ${about}`).toBe(true)
        const after = await snapshot(store)
        expect(breach(token, before, after), about).toBeUndefined()
        for (const queue of ['mail', 'bills']) {
          if (!queuesOf[token].includes(queue)) expect(text.includes(SECRET + queue), about).toBe(false)
        }
        if (response.status === 200) {
          const { groups } = wire.commit.answer.decode(text)
          if (groups.some(({ ok }) => ok)) landed++
        }
      }
      await server.close()
    }
    // The test would hold for a server that refuses everything.
    expect(landed).toBeGreaterThan(BATCHES / 20)
    expect(outcomes.get(400)).toBeGreaterThan(BATCHES / 20)
    expect(outcomes.get(403)).toBeGreaterThan(BATCHES / 20)
  })
})
