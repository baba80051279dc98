// stores/postgres/functions/fast-parts.ts: what the shortest ways into the database have in common: how they begin and how they end.
import { READ_BYTES } from '../../../store/read-pages.js'

/** Separates values in a text; no id and no JSON holds it. */
export const UNIT = 'chr(31)'
/** Separates rows in a text. */
export const ROW = 'chr(30)'

/** Separates an answer from the rows that follow it: as a part of its JSON, every quote in them would be written twice. */
export const GROUP = 'chr(29)'

/** Separates what commits told from each other. */
export const FILE = 'chr(28)'

/**
 * Where a function that is called from outside looks for names. Without it, a function of the same name in a schema of the
 * caller's path is taken where its arguments fit better, and in PostgreSQL 14 anybody may create one in `public`. Functions that
 * only these call, `v1_…` and so on, look where their callers do.
 */
export const pinned = 'set search_path = {S}, pg_temp'

/** The settings of every function that writes: they make its plans independent of statistics, and read what is in order from its index. */
export const steady = `${pinned} set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_sort = off set plan_cache_mode = force_generic_plan set jit = off set lock_timeout = '5s'`

/** About how many bytes of text a job of the table has. Lengths of texts are known without reading them; those of arrays are not. */
export const weight = (j: string): string =>
  `500 + coalesce(octet_length(${j}.data), 0) + coalesce(octet_length(${j}.memo), 0) + coalesce(octet_length(${j}.progress), 0)
      + coalesce(octet_length(${j}.result), 0) + coalesce(octet_length(${j}.error), 0)
      + case when ${j}.errors is null then 0 else octet_length(array_to_string(${j}.errors, '')) end`

/** Data from so many bytes on is looked at before it is read. */
export const LARGE = 8_192

/** More jobs than these may be too much for an answer even if the data of each is small. */
export const MANY = READ_BYTES / LARGE

/**
 * How many of the rows in `tids` an answer can hold that holds `spent` bytes, in `fit_n`: the row that reaches the bytes of
 * an answer is the last. One by one, because weighing a row reads its errors, and a row that does not fit must not be read.
 */
export const fitting = `
      fit_n := 0;
      foreach tid_now in array tids loop
        exit when spent >= ${READ_BYTES};
        fit_n := fit_n + 1;
        select spent + ${weight('o')} into spent from job o where o.ctid = tid_now;
      end loop;`

/** What a quick way declares. PL/pgSQL pays for each variable and each expression in every transaction, so they are few. */
export const declared = `
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  held text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;`

/** Whether the batch of this number was applied before, or the isolation is not what every way relies on. */
export const refused = `(select w.seq from writer w where w.id = by) >= number
      or current_setting('transaction_isolation') <> 'read committed'`

/** What many events alike have of their own, each in one text: ids; lanes and attempts, unless there is one for all; results; and chains, where there are any. */
interface Crowd {
  readonly at: string
  readonly worker?: string
  readonly ids: string
  /** The lanes, as an array and as a text; that of a single one is enough. */
  readonly lanes: string
  readonly lane: string
  readonly attempts?: string
  readonly results?: string
  readonly chains?: string
}

/** Many events of one type, in one text: to write each by itself would cost more than what it tells of. As `events.ts` reads it. */
export function crowd(
  type: 'waiting' | 'active' | 'completed',
  { at, worker, ids, lanes, lane, ...own }: Crowd,
): string {
  const by = worker === undefined ? '' : ` || ',"worker":' || to_json(${worker})::text`
  return `concat_ws(${GROUP}, '{"many":"${type}","at":' || ${at}${by} || ',"of":' || (
        select json_object_agg(l.id, json_build_array(q.name, l.name))::text from lane l join queue q on q.id = l.queue where l.id = any (${lanes})) || '}',
        ${ids}, ${lane}, ${own.attempts ?? "''"}, coalesce(${own.results ?? 'null'}, ''), ${own.chains ?? 'null'})`
}

/** Whether somebody watches events. */
export const recorded = `exists (select 1 from peer y where y.events_until > t)`

/** What a writer counts, with what the commit has counted in `c_of`, `c_what` and `c_n`. In place: as a function it would be planned anew. */
export function counted(had: string): string {
  return `${had} || coalesce((select jsonb_object_agg(y.k, coalesce((${had}->>y.k)::bigint, 0) + y.n)
        from (select z.of || ' ' || z.what as k, sum(z.n) as n from unnest(c_of, c_what, c_n) z(of, what, n) group by 1) y), '{}')`
}

/** Keeps the answer to a batch in the writer's row, in case it is sent again, and what it counted. */
export function kept(writer: string, number: string, groups: string, renewals: string, claim: string): string {
  const receipt = `format('{"again":true,"now":%s,"groups":[%s],"renewals":[%s],"claim":%s}', t, ${groups}, ${renewals}, ${claim})`
  return `
  update writer w set seq = ${number}, at = t, receipt = ${receipt}, counts = ${counted('w.counts')} where w.id = ${writer};
  if not found then
    insert into writer (id, seq, at, receipt, counts) values (${writer}, ${number}, t, ${receipt}, ${counted("'{}'::jsonb")});
  end if;`
}
