// stores/postgres/sql/quick.ts: what the shortest ways into the database have in common: how they begin and how they end.

/** Separates values in a text; no id and no JSON holds it. */
export const UNIT = 'chr(31)'
/** Separates rows in a text. */
export const ROW = 'chr(30)'

/** The settings of every function that writes: they make its plans independent of statistics. */
export const steady = `set search_path = {S}, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
  set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off set lock_timeout = '5s'`

/** What a quick way declares. PL/pgSQL pays for each variable and each expression in every transaction, so they are few. */
export const declared = `
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  held text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;`

/** Whether the batch of this number was applied before, or the isolation is not what every way relies on. */
export const refused = `(select w.seq from writer w where w.id = by) >= number
      or current_setting('transaction_isolation') <> 'read committed'`

/** Whether somebody watches events: those are recorded the long way. */
export const recorded = `exists (select 1 from peer y where y.events_until > t)`

/** Keeps the answer, for a batch that is sent again, with what it counted. */
export function kept(groups: string, claim: string): string {
  return `
  insert into writer as w values (by, number, t, format('{"again":true,"now":%s,"groups":[%s],"renewals":[],"claim":%s}', t, ${groups}, ${claim}),
      v1_counted('{}', c_of, c_what, c_n))
    on conflict (id) do update set seq = excluded.seq, at = excluded.at, receipt = excluded.receipt, counts = v1_counted(w.counts, c_of, c_what, c_n);`
}
