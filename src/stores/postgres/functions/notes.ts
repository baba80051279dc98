// stores/postgres/functions/notes.ts: the part of a commit that writes progress, memos and log lines of many jobs in one
// statement.
import { LOGS_KEPT } from '../../../job/job.js'
import { UNIT } from './fast-parts.js'

const noteRows = `(select y.id, coalesce(y.fence, s->>'f')::bigint as fence, y.progress, y.lines, y.more
              from rows from (unnest(end_ids), unnest(fences), unnest(results), jsonb_array_elements(s->'l'), jsonb_array_elements(s->'w'))
                y(id, fence, progress, lines, more)) x`

const noteValues = "progress = coalesce(x.progress, j.progress), memo = coalesce(x.more->>'m', j.memo), touched = true"

/** The events of a lease holder's note; the SQL condition `progress` is true if the note sets progress. */
export function noteEvents(progress: string): string {
  return `nullif(concat_ws(${UNIT}, case when ${progress} then note_event_{V}('progress', j, t, x.more->>'a') end,
          (select string_agg(note_event_{V}(o.value->>0, j, t, o.value->>1), ${UNIT} order by o.ordinality)
           from jsonb_array_elements(x.more->'t') with ordinality o)), '')`
}

const recordedEvents = `case when recording then ${noteEvents('x.progress is not null')} end as event_texts`

/**
 * Skips jobs that other transactions have locked, and writes log lines. A note of log lines alone does not update the
 * job's row.
 */
const writeUnlocked = `
      with mine as materialized (
        select x.id, x.progress, x.lines, x.more, j.ctid, j.attempt
        from ${noteRows}
        cross join lateral (select o.ctid, o.lease_until, o.attempt from job o where o.id = x.id and o.fence = x.fence for update skip locked) j
        where j.lease_until > t
      ), up as (
        update job j set ${noteValues}
        from mine x where j.ctid = x.ctid and (x.progress is not null or x.more ? 'm')
        returning ${recordedEvents}
      ), put as (
        insert into log (job, n, at, attempt, line)
        select m.id, coalesce((select max(o.n) from log o where o.job = m.id), 0) + l.n, t, m.attempt, l.line
        from mine m cross join lateral jsonb_array_elements_text(m.lines) with ordinality l(line, n)
        where l.n > jsonb_array_length(m.lines) - ${LOGS_KEPT}
      ), cut as (
        delete from log g using mine m
        where m.lines <> '[]' and g.job = m.id
          and g.n <= coalesce((select max(o.n) from log o where o.job = m.id), 0) + jsonb_array_length(m.lines) - ${LOGS_KEPT}
      )
      select coalesce((select array_agg(m.id) from mine m), '{}'), (select string_agg(up.event_texts, ${UNIT}) from up) into ids_in, stands;`

/**
 * Notes by lease holders, in `s`: a group each. `w` holds, by index, memos (`m`), the `about` of progress (`a`) and further
 * events (`t`). Returns in `loose` the indexes of the refused ones, which are then applied one by one to find the reason.
 */
export const notes = `
      ids_in := null;
      if not s ? 'l' then
        begin
          -- In almost all cases no other transaction holds these rows: update them directly, and do not wait for a lock.
          perform set_config('lock_timeout', '1ms', true);
          with up as (
            update job j set ${noteValues} from ${noteRows} where j.id = x.id and j.fence = x.fence and j.lease_until > t
            returning j.id, ${recordedEvents}
          )
          select coalesce(array_agg(up.id), '{}'), string_agg(up.event_texts, ${UNIT}) into ids_in, stands from up;
          perform set_config('lock_timeout', '5s', true);
        exception when lock_not_available or deadlock_detected then
          ids_in := null;
        end;
      end if;
      if ids_in is null then
        ${writeUnlocked}
      end if;
      ev := ev || string_to_array(stands, ${UNIT});
      if cardinality(ids_in) < cardinality(end_ids) then
        select coalesce(array_agg(o.n::int - 1), '{}') into loose from unnest(end_ids) with ordinality o(id, n) where o.id <> all (ids_in);
      end if;
`
