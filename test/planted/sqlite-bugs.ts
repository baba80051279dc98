// Bugs in the SQLite store.
import type { Bug } from './bug.js'

export const sqliteBugs: readonly Bug[] = [
  {
    title: 'a commit is acknowledged before it is on the disk',
    guarantee: 'acknowledged',
    file: 'src/stores/sqlite/sql.ts',
    find: "commit: 'COMMIT',",
    replace: "commit: 'SELECT 1',",
  },
  {
    title: 'many completions together ignore leases',
    guarantee: 'once',
    file: 'src/stores/sqlite/sql.ts',
    find: 'finished_at = ?1 WHERE fence = ?2 AND lease_until > ?1`',
    replace: 'finished_at = ?1 WHERE fence = ?2`',
  },
  {
    title: 'a held move ignores the fence',
    guarantee: 'once',
    file: 'src/stores/sqlite/sql.ts',
    find: 'moveHeld: `${MOVE} AND fence = ? AND lease_until > ?`',
    replace: 'moveHeld: `${MOVE} AND fence <= ? + 9 AND lease_until > ?`',
  },
  {
    title: 'a renewal revives a job that was moved',
    guarantee: 'once',
    file: 'src/stores/sqlite/sql.ts',
    find: "WHERE seq = ?3 AND fence = ?4 AND state = 'active'`",
    replace: "WHERE seq = ?3 AND ?4 > 0 AND state = 'active'`",
  },
  {
    title: 'leases without a job are not counted',
    guarantee: 'limits',
    file: 'src/stores/sqlite/sql.ts',
    find: "AND c.what IN ('active', 'orphaned') WHERE l.queue = ? GROUP BY l.name`",
    replace: "AND c.what IN ('active') WHERE l.queue = ? GROUP BY l.name`",
  },
  {
    title: 'counters are not written before a claim counts leases',
    guarantee: 'limits',
    file: 'src/stores/sqlite/claim.ts',
    find: 'tx.counts.flush(tx.sql)\n  const lanes = collectLanes(tx, ask)',
    replace: 'const lanes = collectLanes(tx, ask)',
  },
  {
    title: 'an old batch is applied again on SQLite',
    guarantee: 'once',
    file: 'src/stores/sqlite/writers.ts',
    find: 'if (last === undefined || batch.seq > last) return undefined',
    replace: 'if (last === undefined || batch.seq >= last) return undefined',
  },
  {
    title: 'a receipt in memory is trusted after another process wrote',
    guarantee: 'once',
    file: 'src/stores/sqlite/writers.ts',
    find: 'this.#upToDate.clear()',
    replace: '',
  },
  {
    title: 'completions together count a dependent down once too few',
    guarantee: 'together',
    file: 'src/stores/sqlite/release.ts',
    find: 'if (count > 1) sql.countDown.run(dependent, count - 1)',
    replace: '',
  },
  {
    title: 'a removed job leaves its dedup key behind',
    guarantee: 'acknowledged',
    file: 'src/stores/sqlite/move.ts',
    find: 'if (job.dedup !== undefined) sql.freeKey.run(job.dedup.key, job.id)',
    replace: '',
  },
  {
    title: 'other handles are not woken',
    guarantee: 'durable',
    file: 'src/stores/sqlite/events.ts',
    find: 'return notices.any\n',
    replace: 'return false\n',
    unit: ['test/faults/waking.test.ts'],
  },
  {
    title: 'events of another handle are skipped without a gap',
    guarantee: 'durable',
    file: 'src/stores/sqlite/events.ts',
    find: 'if (first !== undefined && Number(first.cursor) - 1 === this.#position) {',
    replace: 'if (first !== undefined) {',
  },
  {
    title: 'a job claimed here and taken away is settled from the cache',
    guarantee: 'once',
    file: 'src/stores/sqlite/move.ts',
    find: 'if (leased !== undefined && leased.job.fence === change.fence && settle(tx, leased, to, change)) return undefined',
    replace:
      'if (leased !== undefined && (settle(tx, leased, to, change) || leased.job.fence === change.fence)) return undefined',
  },
]
