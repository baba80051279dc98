// Stores with one rule turned off, to see that the checker notices.
import type { Change } from '../../../src/job/change.js'
import type { JobHeader, JobRecord } from '../../../src/job/job.js'
import { cellKey } from '../../../src/store/settings.js'
import type { Batch, Group, Renewal, Store, Verdict } from '../../../src/store/store.js'

/** Turns a rule of a store off. */
export type Sabotage = (store: Store) => Store

/** The same store, but for what is given. */
export function but(store: Store, changes: Partial<Store>): Store {
  return {
    name: store.name,
    can: store.can,
    ...(store.runtime !== undefined && { runtime: store.runtime }),
    open: () => store.open(),
    commit: (batch) => store.commit(batch),
    get: (ids) => store.get(ids),
    find: (query) => store.find(query),
    details: (query) => store.details(query),
    tally: (queues) => store.tally(queues),
    due: (query) => store.due(query),
    watch: (what, listener) => store.watch(what, listener),
    close: () => store.close(),
    ...changes,
  }
}

/** A change is applied whatever fence it was made for. */
export const withoutFences: Sabotage = (store) =>
  but(store, {
    commit: async (batch) => {
      // Each group goes alone, because it needs the fences that the one before it left behind.
      const groups: Verdict[] = []
      for (const [at, group] of batch.groups.entries()) {
        const ids = group.flatMap((change) => ('id' in change ? [change.id] : []))
        const records = await store.get(ids)
        const fences = new Map(records.flatMap((job) => (job === undefined ? [] : [[job.id, job.fence] as const])))
        const open = group.map((change): Change => {
          if (change.kind !== 'move' && change.kind !== 'note') return change
          const fence = fences.get(change.id) ?? change.fence
          fences.set(change.id, fence + 1)
          return { ...change, fence, held: false }
        })
        const part: Batch = {
          ...batch,
          writer: `${batch.writer}/${batch.seq}/${at}`,
          seq: 1,
          groups: [open],
          renewals: [],
          asks: [],
        }
        groups.push((await store.commit(part)).groups[0]!)
      }
      const receipt = await store.commit({ ...batch, groups: [] })
      return { ...receipt, groups }
    },
  })

/** A batch is applied as often as it arrives. */
export const withoutReplays: Sabotage = (store) => {
  let deliveries = 0
  return but(store, {
    commit: async (batch) => {
      const receipt = await store.commit({ ...batch, writer: `${batch.writer}/${++deliveries}`, seq: 1 })
      return { ...receipt, writer: batch.writer, seq: batch.seq }
    },
  })
}

/** Dependents are released in a commit of their own, which never comes if the process dies in between. */
export const withoutRelease: Sabotage = (store) => {
  let commits = 0
  return but(store, {
    commit: async (batch) => {
      const kept = batch.groups.map((group) => group.filter((change) => change.kind !== 'release'))
      const receipt = await store.commit({ ...batch, groups: kept })
      const later: Group[] = batch.groups
        .filter((_, at) => receipt.groups[at]?.ok === true)
        .map((group) => group.filter((change) => change.kind === 'release'))
      store.runtime!.timer(50, () => {
        const part: Batch = { writer: `later/${++commits}`, seq: 1, groups: later, renewals: [], asks: [] }
        void store.commit(part).catch(() => {})
      })
      return receipt
    },
  })
}

const ALIAS = '~'

/** Upkeep is shown the jobs that its own worker runs, under names by which it does not know them. */
export const withoutExclusion: Sabotage = (store) =>
  but(store, {
    due: async (query) => {
      const seen = await store.due({ ...query, except: [] })
      const alias = (job: JobHeader): JobHeader => (job.state === 'active' ? { ...job, id: job.id + ALIAS } : job)
      return { ...seen, jobs: seen.jobs.map(alias) }
    },
    commit: (batch) => {
      const real = (change: Change): Change =>
        'id' in change && change.id.endsWith(ALIAS) ? { ...change, id: change.id.slice(0, -ALIAS.length) } : change
      return store.commit({ ...batch, groups: batch.groups.map((group) => group.map(real)) })
    },
  })

/**
 * Renewals of running jobs are answered and do nothing, so that leases expire under their holders. Those of jobs that have not
 * started are applied: a claim that is answered late relies on them.
 */
export const withoutRenewals: Sabotage = (store) =>
  but(store, {
    commit: async (batch) => {
      const isApplied = ({ lease, started }: Renewal): boolean => lease === 0 || !started
      const receipt = await store.commit({ ...batch, renewals: batch.renewals.filter(isApplied) })
      const applied = receipt.renewals.values()
      const renewals = batch.renewals.map((renewal): Verdict => {
        return isApplied(renewal) ? applied.next().value! : { ok: true, inserted: [] }
      })
      return { ...receipt, renewals }
    },
  })

/** A key is taken by as many jobs as like. */
export const withoutDedup: Sabotage = (store) =>
  but(store, {
    commit: (batch) => {
      const open = (change: Change): Change =>
        change.kind === 'insert' ? { ...change, job: { ...change.job, dedup: undefined } } : change
      return store.commit({ ...batch, groups: batch.groups.map((group) => group.map(open)) })
    },
  })

/** A run of a schedule is forgotten now and then, and the schedule goes on. */
export const withLostRuns: Sabotage = (store) => {
  let runs = 0
  return but(store, {
    commit: (batch) => {
      const kept = (change: Change): boolean => !isRun(change) || ++runs % 3 !== 0
      return store.commit({ ...batch, groups: batch.groups.map((group) => group.filter(kept)) })
    },
  })
}

/** A schedule makes its runs in one commit and moves in another. */
export const withoutRounds: Sabotage = (store) => {
  let commits = 0
  return but(store, {
    commit: async (batch) => {
      const part = { writer: `apart/${++commits}`, seq: 1, renewals: [], asks: [] }
      const runs = batch.groups.map((group) => group.filter(isRun)).filter((group) => group.length > 0)
      await store.commit({ ...part, groups: runs })
      const rest = batch.groups.map((group) => group.filter((change) => !isRun(change)))
      return store.commit({ ...batch, groups: rest })
    },
  })
}

function isRun(change: Change): boolean {
  return change.kind === 'insert' && change.job.parentId?.startsWith('schedule:') === true
}

/** Limits are written down where no claim looks. */
export const withoutLimits: Sabotage = hidingCells(cellKey.limit(''))

/** Pauses are written down where no claim looks. */
export const withoutPauses: Sabotage = hidingCells(cellKey.pause(''))

/** Holds are answered and not written. */
export const withoutHolds: Sabotage = (store) =>
  but(store, {
    commit: (batch) => {
      const isKept = (change: Change): boolean => change.kind !== 'put' || change.hold === undefined
      return store.commit({ ...batch, groups: batch.groups.map((group) => group.filter(isKept)) })
    },
  })

/** A bulk operation counts a job and forgets to change it. */
export const withForgottenJobs: Sabotage = (store) =>
  but(store, {
    commit: (batch) => {
      const cut = (group: Group): Group => {
        const [row, ...jobs] = group
        const isPage = row?.kind === 'move' && row.id.startsWith('millrace:operation:') && jobs.length > 1
        return isPage ? group.slice(0, 2) : group
      }
      return store.commit({ ...batch, groups: batch.groups.map(cut) })
    },
  })

/** Jobs never expire. */
export const withoutExpiry: Sabotage = (store) =>
  but(store, {
    commit: (batch) => {
      const groups = batch.groups.map((group) =>
        group.map((change): Change => {
          return change.kind === 'insert' ? { ...change, job: { ...change.job, expires: undefined } } : change
        }),
      )
      return store.commit({ ...batch, groups })
    },
  })

/** Events are announced twice. */
export const withDoubledEvents: Sabotage = (store) =>
  but(store, {
    watch: (what, listener) =>
      store.watch(what, (notice) => listener({ ...notice, events: [...notice.events, ...notice.events] })),
  })

/** An add is answered and forgotten, now and then. */
export const withLostAdds: Sabotage = (store) => {
  let adds = 0
  return but(store, {
    commit: async (batch) => {
      const lost = batch.groups.map((group) => group.length === 1 && group[0]!.kind === 'insert' && ++adds % 5 === 0)
      const receipt = await store.commit({
        ...batch,
        groups: batch.groups.map((group, at) => (lost[at]! ? [] : group)),
      })
      const groups = receipt.groups.map((verdict, at): Verdict => {
        const change = batch.groups[at]![0]
        return lost[at]! && change?.kind === 'insert'
          ? { ok: true, inserted: [change.job as unknown as JobRecord] }
          : verdict
      })
      return { ...receipt, groups }
    },
  })
}

function hidingCells(prefix: string): Sabotage {
  const hidden = (key: string): string => (key.startsWith(prefix) ? `no-${key}` : key)
  return (store) =>
    but(store, {
      commit: (batch) => {
        const hide = (change: Change): Change =>
          change.kind === 'put' ? { ...change, key: hidden(change.key) } : change
        return store.commit({ ...batch, groups: batch.groups.map((group) => group.map(hide)) })
      },
      details: async (query) => {
        const { jobs, cells } = await store.details({
          ...query,
          ...(query.cells && { cells: query.cells.map(hidden) }),
        })
        return { jobs, cells: cells.map((cell) => ({ ...cell, key: cell.key.replace(/^no-/, '') })) }
      },
    })
}

/** How often a lane sends a batch before it reports that the store is away: once, and five times again. */
const TRIES = 6

/** A claim without an answer is not sent again once the store was given up: its worker finds no jobs, and goes on. */
export const withoutResends: Sabotage = (store) => {
  let last: Batch | undefined
  let failures = 0
  return but(store, {
    commit: async (batch) => {
      const isResend = last?.writer === batch.writer && last.seq === batch.seq && failures >= TRIES
      if (isResend)
        return { ...batch, now: store.runtime!.now(), groups: [], renewals: [], asks: batch.asks.map(() => []) }
      try {
        return await store.commit(batch)
      } catch (error) {
        if (batch.asks.length === 0) throw error
        const isSame = last?.writer === batch.writer && last.seq === batch.seq
        failures = isSame ? failures + 1 : 1
        last = batch
        throw error
      }
    },
  })
}
