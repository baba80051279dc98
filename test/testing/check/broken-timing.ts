// Workers and stores that are late, to see that the checker notices.
import { but } from './broken-rules.js'
import type { Sabotage } from './broken-rules.js'

/** No worker receives hints of work; events come as ever. */
export const withoutWakeUps: Sabotage = (store) =>
  but(store, { watch: (what, listener) => store.watch(what, (notice) => listener({ ...notice, work: [] })) })

/** Workers do not poll: timers of just that delay never fire. */
export function withoutPoll(pollEvery: number): Sabotage {
  return (store) => {
    const { runtime } = store
    if (runtime === undefined) return store
    const timer: typeof runtime.timer = (delay, work) => (delay === pollEvery ? () => {} : runtime.timer(delay, work))
    return but(store, { runtime: { ...runtime, timer } })
  }
}

/** The store finds no jobs for a while, again and again. */
export function withSleepyClaims(lasts: number): Sabotage {
  return (store) =>
    but(store, {
      commit: async (batch) => {
        const asleep = Math.floor(store.runtime!.now() / lasts) % 2 === 1
        if (!asleep) return store.commit(batch)
        const receipt = await store.commit({ ...batch, asks: [] })
        return { ...receipt, asks: batch.asks.map(() => []) }
      },
    })
}
