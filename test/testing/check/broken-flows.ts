// Stores with one rule of flows, waits or chains turned off, to see that the checker notices.
import type { Change, Insert } from '../../../src/job/change.js'
import type { Edge, EdgePolicy } from '../../../src/job/job.js'
import { move } from '../../../src/job/change.js'
import { but } from './broken-rules.js'
import type { Sabotage } from './broken-rules.js'

/** Reads return other edges than there are. */
function showing(change: (edges: readonly Edge[]) => readonly Edge[]): Sabotage {
  return (store) =>
    but(store, {
      details: async (query) => {
        const { jobs, cells } = await store.details(query)
        return { jobs: jobs.map((job) => ({ ...job, edges: change(job.edges) })), cells }
      },
    })
}

/** What dependencies returned is dropped. */
export const withoutResults: Sabotage = showing((edges) => edges.map((edge) => ({ ...edge, result: undefined })))

/** The last dependency is left out. */
export const withMissingEdges: Sabotage = showing((edges) => edges.slice(0, -1))

/** Dependencies have the results of each other. */
export const withMixedResults: Sabotage = showing((edges) =>
  edges.map((edge, at) => ({ ...edge, result: edges[(at + 1) % edges.length]!.result })),
)

/** Reads never show that a job fails with all of its children. */
export const withoutSiblings: Sabotage = showing((edges) =>
  edges.map((edge) => ({ ...edge, policy: edge.policy.replace('-all', '') as EdgePolicy })),
)

/** A job that waits with several is released by the first of them as well as by the last. */
export const withHastyReleases: Sabotage = (store) =>
  but(store, {
    commit: async (batch) => {
      const groups = await Promise.all(
        batch.groups.map(async (group): Promise<readonly Change[]> => {
          const chains = group.flatMap((change) => (change.kind === 'release' ? [change.chain] : []))
          if (chains.length === 0) return group
          const { jobs } = await store.details({ jobs: chains })
          const dependents = jobs.flatMap((job) => job.dependents).map(({ dependent }) => dependent)
          const records = await store.get([...new Set(dependents)])
          const hasty = records.flatMap((job) =>
            job?.state === 'waiting-children' && job.pending > 1 ? [move(job, 'waiting', { place: 'new' })] : [],
          )
          return [...hasty, ...group]
        }),
      )
      return store.commit({ ...batch, groups })
    },
  })

/** A job that waits for its children does so for none of them. */
export const withoutWaits: Sabotage = (store) =>
  but(store, {
    commit: (batch) => {
      const hurried = (change: Change): Change =>
        change.kind === 'move' && change.waitsFor !== undefined ? { ...change, waitsFor: [] } : change
      return store.commit({ ...batch, groups: batch.groups.map((group) => group.map(hurried)) })
    },
  })

/** A job that is started over does so without what it waits for. */
export const withForgetfulRetries: Sabotage = (store) =>
  but(store, {
    commit: (batch) => {
      const hurried = (change: Change): Change => {
        if (change.kind !== 'move' || !change.reopens) return change
        const { reopens: _reopens, ...rest } = change
        return rest
      }
      return store.commit({ ...batch, groups: batch.groups.map((group) => group.map(hurried)) })
    },
  })

/** Chains do not go on. */
export const withLostContinuations: Sabotage = continuing(() => [])

/** Chains go on twice. */
export const withTwinContinuations: Sabotage = continuing((next) => [
  next,
  { ...next, job: { ...next.job, id: `${next.job.id}-twin` } },
])

function continuing(by: (next: Insert) => readonly Insert[]): Sabotage {
  return (store) =>
    but(store, {
      commit: (batch) => {
        const other = (change: Change): readonly Change[] =>
          change.kind === 'insert' && change.job.chainIndex > 0 ? by(change) : [change]
        return store.commit({ ...batch, groups: batch.groups.map((group) => group.flatMap(other)) })
      },
    })
}
