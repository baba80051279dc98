// conformance/cases/open-and-close.ts: cases on opening twice, closing twice, and calls after closing.
import { refuses, same } from '../check.js'
import { first } from '../driver.js'
import { area } from '../harness.js'

/** Cases of opening and closing, which may be repeated. */
export const openAndClose = area('closing', {
  'opening again changes nothing': async (h) => {
    const d = first(h)
    const job = await d.add('work')
    await Promise.all([h.store.open(), h.store.open()])
    same(await d.job(job), job, 'an open store that is opened again keeps what it holds')
  },

  'every call after closing is refused': async (h) => {
    const { store } = h
    const d = first(h)
    await d.add('work')
    await store.close()
    const calls: Readonly<Record<string, () => unknown>> = {
      open: () => store.open(),
      commit: () => store.commit({ writer: 'late', seq: 1, groups: [], renewals: [], asks: [] }),
      'commit of a replay': () => d.replay(),
      get: () => store.get(['first-1']),
      'get of nothing': () => store.get([]),
      find: () => store.find({}),
      details: () => store.details({}),
      tally: () => store.tally(),
      due: () => store.due({ queues: [], except: [], limit: 1 }),
      watch: () => store.watch({}, () => {}),
      ...(store.transact && { transact: () => store.transact?.(async () => {}) }),
    }
    for (const [name, call] of Object.entries(calls)) {
      await refuses(call, 'STORE_CLOSED', `a closed store refuses: ${name}`)
    }
  },

  'closing again is harmless': async (h) => {
    await Promise.all([h.store.close(), h.store.close()])
    await h.store.close()
  },

  'a watcher can be stopped after its store was closed': async (h) => {
    const stop = h.store.watch({ events: true }, () => {})
    await h.store.close()
    stop()
  },
})
