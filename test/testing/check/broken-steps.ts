// Stores that forget what handlers did, to see that the checker notices.
import { isSignalId } from '../../../src/job/signals.js'
import { but } from './broken-rules.js'
import type { Sabotage } from './broken-rules.js'

/** No run is shown the steps of another. */
export const withForgottenSteps: Sabotage = (store) =>
  but(store, {
    details: async (query) => {
      const { jobs, cells } = await store.details(query)
      return { jobs: jobs.map((job) => ({ ...job, steps: [] })), cells }
    },
  })

/** A signal is another one each time. */
export const withOtherSignals: Sabotage = (store) => {
  let times = 0
  const other = <T extends { readonly result: string | undefined }>(from: T): T =>
    from.result === undefined ? from : { ...from, result: `"${++times}"` }
  return but(store, {
    get: async (ids) =>
      (await store.get(ids)).map((job) => (job !== undefined && isSignalId(job.id) ? other(job) : job)),
    details: async (query) => {
      const { jobs, cells } = await store.details(query)
      const shown = jobs.map((job) => ({
        ...job,
        edges: job.edges.map((edge) => (isSignalId(edge.chain) ? other(edge) : edge)),
      }))
      return { jobs: shown, cells }
    },
  })
}
