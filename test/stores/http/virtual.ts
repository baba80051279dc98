// Time that passes only when a test says so, and a server that is made of the answers of a test.
import { setImmediate } from 'node:timers/promises'
import { systemRuntime } from '../../../src/store/runtime.js'
import type { Runtime } from '../../../src/store/runtime.js'

/** A runtime whose timers fire when `advance` is called, in their order. */
export function virtualTime(): { readonly runtime: Runtime; readonly advance: (ms: number) => Promise<void> } {
  let now = 0
  let timers: { readonly at: number; readonly work: () => void }[] = []
  const runtime: Runtime = {
    ...systemRuntime(),
    now: () => now,
    elapsed: () => now,
    random: () => 0,
    timer(delay, work) {
      const timer = { at: now + delay, work }
      timers.push(timer)
      return () => void (timers = timers.filter((each) => each !== timer))
    },
  }
  const settle = async (): Promise<void> => {
    for (let turns = 0; turns < 5; turns++) await setImmediate()
  }
  return {
    runtime,
    async advance(ms) {
      const until = now + ms
      await settle()
      for (;;) {
        const [next] = timers.filter(({ at }) => at <= until).toSorted((a, b) => a.at - b.at)
        if (next === undefined) break
        timers = timers.filter((each) => each !== next)
        now = Math.max(now, next.at)
        next.work()
        await settle()
      }
      now = until
      await settle()
    },
  }
}

/** A request that reached the server of a test, and its answer. */
export interface Arrived {
  readonly url: string
  readonly init: RequestInit
  answer(response: Response): void
  fail(error: Error): void
}

/** A `fetch` whose requests wait for the test. */
export function heldFetch(): {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>
  readonly arrived: Arrived[]
} {
  const arrived: Arrived[] = []
  const fetch = (url: string, init: RequestInit): Promise<Response> =>
    new Promise((resolve, reject) => {
      init.signal?.addEventListener('abort', () => reject(init.signal!.reason as Error))
      arrived.push({ url, init, answer: resolve, fail: reject })
    })
  return { fetch, arrived }
}

/** The error of a connection that was never made. */
export function refusedConnection(): Error {
  return new TypeError('fetch failed', { cause: Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }) })
}

/** An answer that is a problem. */
export function problem(status: number, code: string, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify({ code, detail: `the ${code}`, details: { at: 'here' } }), { status, headers })
}
