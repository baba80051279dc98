// stores/postgres/functions/fast-parts.ts: SQL that the fast paths share: how they begin and how they end.
import { READ_BYTES } from '../../../store/read-pages.js'

/** Separates values in a text; neither ids nor JSON contain it. */
export const UNIT = 'chr(31)'
/** Separates rows in a text. */
export const ROW = 'chr(30)'

/** Separates an answer from the rows after it: inside the JSON of the answer, every quote in the rows would be escaped. */
export const GROUP = 'chr(29)'

/** Separates the events of different commits. */
export const FILE = 'chr(28)'

/** Milliseconds until the next claim, if another transaction's lock kept a claim from a waiting job. */
export const CLAIM_RETRY = 250

/**
 * The search path of functions that are called from outside. Without it, PostgreSQL may resolve a call to a function of
 * the same name in a schema of the caller's search path, if its arguments fit better, and in PostgreSQL 14 any role may
 * create one in `public`. Functions that only other functions call inherit it.
 */
export const searchPath = 'set search_path = {S}, pg_temp'

/**
 * The settings of every function that writes: plans do not depend on statistics, and ordered reads use the index of that
 * order.
 */
export const writeSettings = `${searchPath} set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_sort = off set plan_cache_mode = force_generic_plan set jit = off set lock_timeout = '5s'`

/**
 * The approximate bytes of text of a row in `job`. The length of a text is known without reading it; that of an array is
 * not.
 */
export const rowBytes = (j: string): string =>
  `500 + coalesce(octet_length(${j}.data), 0) + coalesce(octet_length(${j}.memo), 0) + coalesce(octet_length(${j}.progress), 0)
      + coalesce(octet_length(${j}.result), 0) + coalesce(octet_length(${j}.error), 0) + coalesce(octet_length(${j}.history), 0)
      + case when ${j}.errors is null then 0 else octet_length(array_to_string(${j}.errors, '')) end`

/** Whether a job that waits may be claimed at a time: `hasExpired` in job/lifecycle.ts. */
export const unexpired = (j: string, at: string): string =>
  `(${j}.expires_at is null or ${j}.expires_at > ${at} or ${j}.attempt > 0)`

/** From this many bytes on, the size of a job's data is checked before the data is read. */
export const LARGE = 8_192

/** More jobs than this may exceed the size of an answer even if the data of each is small. */
export const MANY = READ_BYTES / LARGE

/**
 * Counts in `fit_n` how many of the rows in `tids` fit into an answer that already holds `spent` bytes; the row that reaches
 * the limit is the last. Row by row, because measuring a row reads its errors, and rows that do not fit must not be read.
 */
export const countFitting = `
      fit_n := 0;
      foreach tid_now in array tids loop
        exit when spent >= ${READ_BYTES};
        fit_n := fit_n + 1;
        select spent + ${rowBytes('o')} into spent from job o where o.ctid = tid_now;
      end loop;`

/**
 * The declarations of a fast path. PL/pgSQL pays for each variable and expression in every transaction, so there are few.
 */
export const declarations = `
  t bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()) * 1000));
  held text := pg_advisory_xact_lock_shared(hashtextextended('{S}:recording', 0))::text
    || pg_advisory_xact_lock(hashtextextended('{S}:writer:' || by, 0))::text;`

/** Whether the batch with this number was applied before, or the isolation level is not the one that all paths need. */
export const isRefused = `(select w.seq from writer w where w.id = by) >= number
      or current_setting('transaction_isolation') <> 'read committed'`

/**
 * The SQL of the values in which many similar events differ, each as one text: ids; lanes and attempts, or one for all;
 * results; and chains, if there are any.
 */
interface ManyEvents {
  readonly at: string
  readonly worker?: string
  readonly ids: string
  /** The lanes, as an array and as a text; a text of one lane stands for all. */
  readonly lanes: string
  readonly lane: string
  readonly attempts?: string
  readonly results?: string
  readonly chains?: string
}

/**
 * Many events of one type in one text, as `event-rows.ts` reads it: writing each event by itself would cost more than the
 * change that it reports.
 */
export function manyEvents(
  type: 'waiting' | 'active' | 'completed',
  { at, worker, ids, lanes, lane, ...own }: ManyEvents,
): string {
  const by = worker === undefined ? '' : ` || ',"worker":' || to_json(${worker})::text`
  return `concat_ws(${GROUP}, '{"many":"${type}","at":' || ${at}${by} || ',"of":' || (
        select json_object_agg(l.id, json_build_array(q.name, l.name))::text from lane l join queue q on q.id = l.queue where l.id = any (${lanes})) || '}',
        ${ids}, ${lane}, ${own.attempts ?? "''"}, coalesce(${own.results ?? 'null'}, ''), ${own.chains ?? 'null'})`
}

/** Whether a process watches events. */
export const hasWatchers = `exists (select 1 from peer y where y.events_until > t)`

/**
 * A writer's counts plus those of this commit in `c_of`, `c_what` and `c_n`. Inlined: a function would be planned anew
 * each time.
 */
export function addCounts(had: string): string {
  return `${had} || coalesce((select jsonb_object_agg(y.k, coalesce((${had}->>y.k)::bigint, 0) + y.n)
        from (select z.of || ' ' || z.what as k, sum(z.n) as n from unnest(c_of, c_what, c_n) z(of, what, n) group by 1) y), '{}')`
}

/** Stores the receipt of a batch in the writer's row, for a replay, and adds the counts of the batch. */
export function keepReceipt(writer: string, number: string, groups: string, renewals: string, claim: string): string {
  const receipt = `format('{"again":true,"now":%s,"groups":[%s],"renewals":[%s],"claim":%s}', t, ${groups}, ${renewals}, ${claim})`
  return `
  update writer w set seq = ${number}, at = t, receipt = ${receipt}, counts = ${addCounts('w.counts')} where w.id = ${writer};
  if not found then
    insert into writer (id, seq, at, receipt, counts) values (${writer}, ${number}, t, ${receipt}, ${addCounts("'{}'::jsonb")});
  end if;`
}
