// The raw driver of the memory store: batches committed directly, without queue, worker or batcher.
import type { Insert } from '../../src/job/change.js'
import type { JobRecord } from '../../src/job/job.js'
import { create, settle } from '../../src/job/lifecycle.js'
import { systemRuntime } from '../../src/store/runtime.js'
import type { Store } from '../../src/store/store.js'
import { memory } from '../../src/stores/memory/store.js'

/** Inserts `count` jobs in batches; returns jobs per second. */
export async function bareAdds(count: number, size: number, data: unknown): Promise<number> {
  const store = memory()
  const start = performance.now()
  await fill(store, count, size, data)
  const millis = performance.now() - start
  await store.close()
  return Math.round((count / millis) * 1000)
}

/** Claims and settles `count` jobs, a batch at a time; returns jobs per second. */
export async function bareDrain(count: number, size: number, data: unknown): Promise<number> {
  const store = memory()
  await fill(store, count, size, data)
  const start = performance.now()
  let held: readonly JobRecord[] = []
  for (let seq = 1; ; seq++) {
    const receipt = await store.commit({
      writer: 'drain',
      seq,
      groups: held.map((job) => settle(job, { kind: 'returned', result: undefined, also: [] })),
      renewals: [],
      asks: [{ worker: 'w', queues: ['bench'], handles: [{ name: 'noop', lease: 30_000 }], want: size, ahead: 0 }],
    })
    held = receipt.asks[0] ?? []
    if (held.length === 0) break
  }
  const millis = performance.now() - start
  await store.close()
  return Math.round((count / millis) * 1000)
}

async function fill(store: Store, count: number, size: number, data: unknown): Promise<void> {
  const { id } = systemRuntime()
  for (let seq = 1; (seq - 1) * size < count; seq++) {
    const groups = Array.from({ length: size }, () => [insertOf(id(), JSON.stringify(data))])
    await store.commit({ writer: 'fill', seq, groups, renewals: [], asks: [] })
  }
}

function insertOf(id: string, data: string): Insert {
  return create({
    id,
    kind: 'job',
    queue: 'bench',
    name: 'noop',
    version: 1,
    data,
    priority: 0,
    lifo: false,
    attempts: 3,
    backoff: undefined,
    timeout: undefined,
    run: undefined,
    parentId: undefined,
    group: undefined,
    dedup: undefined,
    keep: undefined,
    extras: undefined,
    edges: [],
  })
}
