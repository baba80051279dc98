// Stores that break one duty each, made of the memory store, to prove that the suite notices.
import type { Change, When } from '../../src/job/change.js'
import type { Edge, JobRecord } from '../../src/job/job.js'
import type { Batch, Group, Notice, Receipt, Store } from '../../src/store/store.js'
import type { StoreEvent } from '../../src/job/events.js'

/** A broken store, and the areas of the suite that must detect it. */
export interface Sabotage {
  readonly areas: readonly string[]
  /** Random walks must notice as well. */
  readonly walks?: boolean
  readonly wrap: (store: Store) => Store
}

type Rewrite = (change: Change, store: Store) => Promise<Change | undefined>

/** Changes pass through `rewrite` on their way in; undefined drops one. */
function rewriting(rewrite: Rewrite): (store: Store) => Store {
  return (store) => ({
    ...store,
    commit: async (batch) => {
      const groups: Group[] = []
      for (const group of batch.groups) {
        const changes = await Promise.all(group.map((change) => rewrite(change, store)))
        groups.push(changes.filter((change) => change !== undefined))
      }
      return store.commit({ ...batch, groups })
    },
  })
}

/** Batches pass through on their way in, receipts on their way out. */
function between(send: (batch: Batch) => Batch, answer: (receipt: Receipt) => Receipt = (same) => same) {
  return (store: Store): Store => ({ ...store, commit: async (batch) => answer(await store.commit(send(batch))) })
}

/** Notices pass through on their way out. */
function changingNotices(rewrite: (notice: Notice) => Notice): (store: Store) => Store {
  return (store) => ({
    ...store,
    watch: (options, listener) => store.watch(options, (notice) => listener(rewrite(notice))),
  })
}

const itself = (batch: Batch): Batch => batch

async function standing(store: Store, id: string): Promise<JobRecord | undefined> {
  const [job] = await store.get([id])
  return job
}

function clientTime(when: When | null | undefined): When | null | undefined {
  return when && 'in' in when ? { at: Date.now() + when.in } : when
}

let writers = 0

export const sabotages: Readonly<Record<string, Sabotage>> = {
  'adds jobs that never expire': {
    areas: ['expiry'],
    walks: true,
    wrap: rewriting(async (change) => {
      if (change.kind !== 'insert' || change.job.expires === undefined) return change
      return { ...change, job: { ...change.job, expires: undefined } }
    }),
  },
  'holds every job of the queue, whatever a hold is for': {
    areas: ['holds'],
    wrap: rewriting(async (change) => {
      if (change.kind !== 'put' || change.hold === undefined) return change
      const { for: length, by, job } = change.hold
      return { ...change, hold: { for: length, ...(by !== undefined && { by }), ...(job !== undefined && { job }) } }
    }),
  },
  'shows that every waiting job has waited since 1970': {
    areas: ['heads'],
    wrap: (store) => ({
      ...store,
      tally: async (queues, tx, options) =>
        (await store.tally(queues, tx, options)).map((tally) => {
          if (tally.heads === undefined) return tally
          const waiting = Object.fromEntries(Object.keys(tally.heads.waiting).map((name) => [name, 0]))
          return { ...tally, heads: { ...tally.heads, waiting } }
        }),
    }),
  },
  'finds jobs with any of the tags where all are asked for': {
    areas: ['filters'],
    wrap: (store) => ({
      ...store,
      find: ({ tags, ...query }) => store.find(tags === undefined ? query : { ...query, anyTag: tags }),
    }),
  },

  'ignores the ends of ranges of time': {
    areas: ['filters'],
    wrap: (store) => ({
      ...store,
      find: (query) => store.find(query.created === undefined ? query : { ...query, created: { from: 0 } }),
    }),
  },

  'ignores fences': {
    areas: ['fences', 'broken dependencies'],
    walks: true,
    wrap: rewriting(async (change, store) => {
      if (change.kind !== 'move' && change.kind !== 'note') return change
      const job = await standing(store, change.id)
      return { ...change, fence: job?.fence ?? change.fence }
    }),
  },
  'lets a late holder settle': {
    areas: ['fences'],
    walks: true,
    wrap: rewriting(async (change) => {
      return change.kind === 'move' || change.kind === 'note' ? { ...change, held: false } : change
    }),
  },
  'cuts claims without a mark': {
    areas: ['large claims'],
    wrap: between(itself, ({ again: _again, ...receipt }) => receipt),
  },
  'answers no inserted jobs': {
    areas: ['refusals'],
    walks: true,
    wrap: between(itself, (receipt) => ({
      ...receipt,
      groups: receipt.groups.map((verdict) => (verdict.ok ? { ok: true, inserted: [] } : verdict)),
    })),
  },
  'names the first change of a group, whichever it refused': {
    areas: ['refusals'],
    walks: true,
    wrap: between(itself, (receipt) => ({
      ...receipt,
      groups: receipt.groups.map((verdict) => (verdict.ok ? verdict : { ...verdict, change: 0 })),
    })),
  },
  'returns no existing job': {
    areas: ['fences', 'refusals', 'dedup'],
    wrap: between(itself, (receipt) => ({
      ...receipt,
      groups: receipt.groups.map((verdict) => {
        return verdict.ok ? verdict : { ok: false, change: verdict.change, why: verdict.why, id: verdict.id }
      }),
    })),
  },
  'applies the changes of a group one by one': {
    areas: ['refusals'],
    wrap: (store) => ({
      ...store,
      commit: async (batch) => {
        const groups = batch.groups.flatMap((group) => group.map((change) => [change]))
        const receipt = await store.commit({ ...batch, groups })
        let at = 0
        const verdicts = batch.groups.map((group) => {
          const parts = receipt.groups.slice(at, (at += group.length))
          const refused = parts.find((verdict) => !verdict.ok)
          return refused ?? { ok: true as const, inserted: parts.flatMap((part) => (part.ok ? part.inserted : [])) }
        })
        return { ...receipt, groups: verdicts }
      },
    }),
  },
  'remembers no batch': {
    areas: ['replays'],
    walks: true,
    wrap: between((batch) => ({ ...batch, writer: `${batch.writer}-${++writers}` })),
  },
  'claims in the wrong order': {
    areas: ['order'],
    walks: true,
    wrap: between(itself, (receipt) => ({ ...receipt, asks: receipt.asks.map((jobs) => jobs.toReversed()) })),
  },
  'knows no LIFO': {
    areas: ['order'],
    walks: true,
    wrap: rewriting(async (change) => {
      return change.kind === 'insert' ? { ...change, job: { ...change.job, lifo: false } } : change
    }),
  },
  'puts a stalled job behind': {
    areas: ['order'],
    wrap: rewriting(async (change) => (change.kind === 'move' ? { ...change, place: 'new' } : change)),
  },
  'gives every version': {
    areas: ['asks'],
    walks: true,
    wrap: between((batch) => ({
      ...batch,
      asks: batch.asks.map((ask) => ({ ...ask, handles: ask.handles.map(({ name, lease }) => ({ name, lease })) })),
    })),
  },
  'leases ahead whatever it is': {
    areas: ['asks'],
    walks: true,
    wrap: between((batch) => ({
      ...batch,
      asks: batch.asks.map((ask) => ({ ...ask, want: ask.want + ask.ahead, ahead: 0 })),
    })),
  },
  'heeds no pause': {
    areas: ['pauses'],
    wrap: rewriting(async (change) => {
      return change.kind === 'put' && change.key.startsWith('pause:') ? { ...change, key: `x${change.key}` } : change
    }),
  },
  'heeds no limit': {
    areas: ['limits', 'rates', 'groups', 'refusals'],
    wrap: rewriting(async (change) => {
      return change.kind === 'put' && change.key.startsWith('limit:') ? { ...change, key: `x${change.key}` } : change
    }),
  },
  'gives no turns': {
    areas: ['groups'],
    walks: true,
    wrap: rewriting(async (change) => {
      return change.kind === 'insert' ? { ...change, job: { ...change.job, group: undefined } } : change
    }),
  },
  'does not say when to ask again': {
    areas: ['rates'],
    wrap: between(itself, ({ again: _again, ...receipt }) => receipt),
  },
  'counts a cancelled job no longer': {
    areas: ['limits'],
    wrap: (store) => ({
      ...store,
      commit: async (batch) => {
        const cancels = batch.groups.flat().filter((change) => change.kind === 'move' && !change.held)
        const renewals = cancels.flatMap((change) => {
          return change.kind === 'move' ? [{ id: change.id, fence: change.fence, lease: 0, started: false }] : []
        })
        const receipt = await store.commit({ ...batch, renewals: [...batch.renewals, ...renewals] })
        return { ...receipt, renewals: receipt.renewals.slice(0, batch.renewals.length) }
      },
    }),
  },
  'forgets what dependencies came to': {
    areas: ['waiting for children'],
    walks: true,
    wrap: (store) => ({
      ...store,
      details: async (query) => {
        const { jobs, ...rest } = await store.details(query)
        const bare = (edge: Edge): Edge => ({ ...edge, result: undefined, error: undefined })
        return { ...rest, jobs: jobs.map((each) => ({ ...each, edges: each.edges.map(bare) })) }
      },
    }),
  },
  'lets running jobs wait for nobody': {
    areas: ['waiting for children'],
    walks: true,
    wrap: rewriting(async (change) =>
      change.kind === 'move' && change.waitsFor ? { ...change, waitsFor: [] } : change,
    ),
  },
  'releases nobody': {
    areas: ['dependencies', 'broken dependencies', 'waiting for children'],
    walks: true,
    wrap: rewriting(async (change) => (change.kind === 'release' ? undefined : change)),
  },
  'takes every end for a good one': {
    areas: ['broken dependencies'],
    walks: true,
    wrap: rewriting(async (change) => (change.kind === 'release' ? { ...change, outcome: 'completed' } : change)),
  },
  'never closes what broke': {
    areas: ['broken dependencies'],
    walks: true,
    wrap: rewriting(async (change) => (change.kind === 'move' ? { ...change, closesBroken: false } : change)),
  },
  'strips dedup keys': {
    areas: ['dedup'],
    walks: true,
    wrap: rewriting(async (change) => {
      return change.kind === 'insert' ? { ...change, job: { ...change.job, dedup: undefined } } : change
    }),
  },
  'forgets windows': {
    areas: ['dedup'],
    walks: true,
    wrap: rewriting(async (change) => {
      if (change.kind !== 'insert' || change.job.dedup === undefined) return change
      return { ...change, job: { ...change.job, dedup: { key: change.job.dedup.key } } }
    }),
  },
  'writes cells whatever their version': {
    areas: ['cells'],
    walks: true,
    wrap: rewriting(async (change, store) => {
      if (change.kind !== 'put') return change
      const { cells } = await store.details({ cells: [change.key] })
      return { ...change, version: cells[0]?.version ?? 0 }
    }),
  },
  "judges delays by the caller's clock": {
    areas: ['due'],
    walks: true,
    wrap: rewriting(async (change) => {
      if (change.kind === 'insert')
        return { ...change, job: { ...change.job, run: clientTime(change.job.run) ?? undefined } }
      if (change.kind !== 'move') return change
      const run = clientTime(change.set.run)
      return run === undefined ? change : { ...change, set: { ...change.set, run } }
    }),
  },
  'reaps what runs in the asking worker': {
    areas: ['due'],
    wrap: (store) => ({ ...store, due: (query) => store.due({ ...query, except: [] }) }),
  },
  'pages by counting rows': {
    areas: ['find'],
    wrap: (store) => ({
      ...store,
      find: async (query) => {
        const { cursor = '0', limit = 100, ...rest } = query
        const { items } = await store.find({ ...rest, limit: 10_000 })
        const end = Number(cursor) + limit
        return { items: items.slice(Number(cursor), end), ...(end < items.length && { cursor: String(end) }) }
      },
    }),
  },
  'counts only what is still there': {
    areas: ['tallies'],
    walks: true,
    wrap: (store) => ({
      ...store,
      tally: async (queues) => {
        const tallies = await store.tally(queues)
        return tallies.map(({ queue, names, leases, lifetime }) => {
          const completed = Object.values(names).reduce((sum, states) => sum + (states.completed ?? 0), 0)
          return { queue, names, leases, lifetime: { ...lifetime, completed } }
        })
      },
    }),
  },
  'cuts cells without a mark': {
    areas: ['cells'],
    walks: false,
    wrap: (store) => ({
      ...store,
      details: async (query) => {
        const { moreCells: _more, ...rest } = await store.details(query)
        return rest
      },
    }),
  },
  'returns log lines newest first': {
    areas: ['details'],
    walks: true,
    wrap: (store) => ({
      ...store,
      details: async (query) => {
        const { jobs, ...rest } = await store.details(query)
        return { ...rest, jobs: jobs.map((each) => ({ ...each, logs: each.logs.toReversed() })) }
      },
    }),
  },
  'forgets the first step of a job': {
    areas: ['notes'],
    walks: true,
    wrap: (store) => ({
      ...store,
      details: async (query) => {
        const { jobs, ...rest } = await store.details(query)
        return { ...rest, jobs: jobs.map((each) => ({ ...each, steps: each.steps.slice(1) })) }
      },
    }),
  },
  'loses the memo of a job that is claimed': {
    areas: ['notes'],
    walks: false,
    wrap: (store) => ({
      ...store,
      commit: async (batch) => {
        const receipt = await store.commit(batch)
        return { ...receipt, asks: receipt.asks.map((jobs) => jobs.map((job) => ({ ...job, memo: undefined }))) }
      },
    }),
  },
  'publishes events twice': {
    areas: ['events'],
    walks: true,
    wrap: changingNotices((notice) => ({ ...notice, events: notice.events.flatMap((event) => [event, event]) })),
  },
  'loses an event now and then': {
    areas: ['events'],
    walks: true,
    wrap: changingNotices((notice) => ({ ...notice, events: notice.events.filter(({ type }) => type !== 'active') })),
  },
  'publishes before it is durable': {
    areas: ['events'],
    wrap: (store) => {
      const listeners = new Set<(notice: Notice) => void>()
      return {
        ...store,
        watch: (options, listener) => {
          listeners.add(listener)
          const stop = store.watch(options, listener)
          return () => {
            listeners.delete(listener)
            stop()
          }
        },
        commit: (batch) => {
          const inserted = batch.groups.flat().flatMap((change) => (change.kind === 'insert' ? [change.job] : []))
          const events = inserted.map(({ id, queue, name }): StoreEvent => {
            return { cursor: `early ${id}`, type: 'waiting', id, queue, name, at: 0 }
          })
          const early = { work: [], due: [], revoked: [], events, gap: false }
          for (const listener of listeners) if (events.length > 0) listener(early)
          return store.commit(batch)
        },
      }
    },
  },
  'resumes from now whatever the cursor': {
    areas: ['events'],
    wrap: (store) => ({ ...store, watch: ({ events = false }, listener) => store.watch({ events }, listener) }),
  },
  'gives no hints': {
    areas: ['hints'],
    wrap: changingNotices((notice) => ({ ...notice, work: [], due: [], revoked: [] })),
  },
  'reports only the first revoked leases': {
    areas: ['hints'],
    wrap: changingNotices((notice) => ({ ...notice, revoked: notice.revoked.slice(0, 50) })),
  },
  'says the wrong reason': {
    areas: ['hints'],
    wrap: changingNotices((notice) => ({
      ...notice,
      revoked: notice.revoked.map(({ id, fence, worker }) => ({ id, fence, worker, reason: 'lease-lost' })),
    })),
  },
  'rewrites JSON': {
    areas: ['values'],
    wrap: (store) => ({
      ...store,
      get: async (ids) => (await store.get(ids)).map(rewritten),
    }),
  },
  'moves schedules on without their runs': {
    areas: ['schedules'],
    walks: true,
    wrap: rewriting(async (change) =>
      change.kind === 'insert' && change.job.parentId !== undefined && change.job.kind === 'job' ? undefined : change,
    ),
  },
  'takes schedules for jobs': {
    areas: ['schedules', 'tallies', 'find'],
    walks: true,
    wrap: rewriting(async (change) =>
      change.kind === 'insert' ? { ...change, job: { ...change.job, kind: 'job' } } : change,
    ),
  },
  'reads the whole log, whatever the page': {
    areas: ['details'],
    wrap: (store) => ({ ...store, details: ({ logs: _page, ...query }) => store.details(query) }),
  },
  'drops lines that are to be kept': {
    areas: ['details'],
    wrap: (store) => ({
      ...store,
      details: async (query) => {
        const { jobs, cells } = await store.details(query)
        return { jobs: jobs.map((job) => ({ ...job, logs: job.logs.slice(-900) })), cells }
      },
    }),
  },
  'answers after it was closed': {
    areas: ['closing'],
    wrap: (store) => ({ ...store, close: async () => {} }),
  },
}

/** What a database does that keeps JSON as a tree of its own. */
function rewritten(job: JobRecord | undefined): JobRecord | undefined {
  return job?.progress === undefined ? job : { ...job, progress: JSON.stringify(sorted(JSON.parse(job.progress))) }
}

function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
}
