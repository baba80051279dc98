// Measures how long one commit blocks the event loop, while jobs are added in every way and processed at full speed.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Queue, Worker, shutdown } from 'millrace'
import type { Store } from 'millrace'
import { BULK, CALLERS, CONCURRENCY, Ledger, NAME, QUEUE, account, keyOf, payload } from '../measure/load.js'
import type { Mode } from '../measure/load.js'
import { percentile } from '../measure/measure.js'
import type { Sample } from '../measure/measure.js'
import { addInFlight } from '../contenders/millrace.js'
import { openRaw, singles, turns } from '../contenders/raw-sqlite.js'
import { openStore } from '../contenders/millrace-sqlite.js'

/** More jobs than any machine adds within a measurement. */
const ROOM = 2_000_000
/** The resolution at which delays of the event loop are measured, in milliseconds. */
const RESOLUTION = 1

/**
 * A store whose commits are timed. A commit that settles before the event loop turns has blocked it for that time. A commit
 * that waits for another process has not; the figure of the whole loop covers it.
 */
function timed(store: Store, took: (millis: number) => void): Store {
  const commit: Store['commit'] = async (batch, tx) => {
    let turned = false
    const turn = setImmediate(() => (turned = true))
    const start = performance.now()
    const receipt = await store.commit(batch, tx)
    if (!turned && batch.groups.every((group) => group.length <= 500)) took(performance.now() - start)
    clearImmediate(turn)
    return receipt
  }
  return new Proxy(store, {
    get(target, key) {
      if (key === 'commit') return commit
      const value: unknown = Reflect.get(target, key)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

const pause = (millis: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, millis)
  })

/** Waits until the queue is empty, or until nothing has changed for 20 s. */
async function over(left: () => number): Promise<void> {
  let before = left()
  for (let still = 0; before > 0 && still < 1000; still++) {
    await pause(20)
    const now = left()
    if (now !== before) still = 0
    before = now
  }
}

/**
 * The figures are `commit` (the longest commit), `p99` of all commits, and `loop` (the longest turn of the event loop).
 */
export async function millraceHold(path: string, mode: Mode, seconds: number): Promise<Sample> {
  const times: number[] = []
  const store = timed(openStore(path, mode), (millis) => times.push(millis))
  const queue = new Queue(QUEUE, { store })
  const ledger = new Ledger(ROOM)
  let added = 0
  let completed = 0
  const handlers = { [NAME]: (job: { readonly id: string }) => ledger.ran(keyOf(job.id)) }
  const worker = new Worker(queue, handlers, { concurrency: CONCURRENCY, autorun: false })
  worker.on('completed', () => completed++)
  await worker.run()
  const end = performance.now() + seconds * 1000
  const on = (): boolean => performance.now() < end
  const bulk = async (): Promise<void> => {
    while (on())
      await queue.addBulk(Array.from({ length: BULK }, () => ({ name: NAME, data: payload(added++, 'light') })))
  }
  const delays = monitorEventLoopDelay({ resolution: RESOLUTION })
  delays.enable()
  await Promise.all([addInFlight(queue, 'light', () => (on() ? added++ : undefined)), bulk()])
  delays.disable()
  await over(() => added - completed)
  const counts = await queue.counts()
  await shutdown([worker, queue, store])
  const loop = Math.max(0, delays.max / 1e6 - RESOLUTION)
  return {
    figures: { commit: Math.max(...times), p99: percentile(times, 0.99), loop },
    ...account(ledger, added, counts.completed),
  }
}

/** The hand-written program under the same load: calls in flight, a bulk, then a batch of its worker. */
export async function rawHold(path: string, mode: Mode, seconds: number): Promise<Sample> {
  const db = openRaw(path, mode)
  const insert = singles(db, 'light')
  const turn = turns(db)
  const times: number[] = []
  const time = <T>(work: () => T): T => {
    const start = performance.now()
    const answer = work()
    times.push(performance.now() - start)
    return answer
  }
  let added = 0
  let held: ReturnType<typeof turn> = []
  for (const end = performance.now() + seconds * 1000; performance.now() < end;) {
    time(() => insert(added, CALLERS))
    time(() => insert(added + CALLERS, BULK / 2 - CALLERS))
    added += BULK / 2
    held = time(() => turn(held, BULK / 2))
  }
  turn(held, 0)
  db.close()
  return { figures: { commit: Math.max(...times), p99: percentile(times, 0.99), loop: Math.max(...times) } }
}
