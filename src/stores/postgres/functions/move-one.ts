// stores/postgres/functions/move-one.ts: the part of a commit that moves one job to another state, as `moveRecord` in
// job/apply.ts.
import { ERRORS_KEPT } from '../../../job/job.js'

import { wantedEdges, writeEdges } from './edges.js'
import { lockJob } from './lock.js'
import { conflictingJob, movedJob } from './refusals.js'

/** One move, in `x`. */
export const move = `${lockJob}
        if (x ? 'held' and not (j.state = 'active' and j.lease_until > t))
          or (x ? 'reaps' and not (j.state = 'active' and j.lease_until <= t)) then
          why := 'fence'; over := j.id; stands := ${movedJob}; exit;
        end if;
        if x ? 'ro' then
          select * into ew from {S}.reopened_edges_{V}(j.id);
          if ew.over is not null then why := 'broken'; over := ew.over; exit; end if;
        end if;
        was_done := j.state in ('completed', 'failed', 'cancelled');
        ends := x->>'to' in ('completed', 'failed', 'cancelled');
        if j.dedup is not null then
          dedup_key := j.dedup::json->>'key';
          if (ends or x->>'to' = 'removed') and exists (select 1 from key y where y.key = dedup_key and y.job = j.id and y.until is null) then
            perform 1 from key y where y.key = dedup_key for update skip locked;
            if not found then why := 'busy'; over := j.id; exit; end if;
          end if;
          if was_done and not ends and x->>'to' <> 'removed' then
            if not pg_try_advisory_xact_lock(hashtextextended('{S}:key:' || dedup_key, 0)) then
              why := 'busy'; over := j.id; exit;
            end if;
            select y.job into over from key y where y.key = dedup_key and (y.until is null or y.until > t);
            if found and over <> j.id then
              why := 'duplicate';${conflictingJob('over')}
              exit;
            end if;
            if not found and j.dedup::json->>'window' is null then
              insert into key values (dedup_key, j.id, null) on conflict (key) do update set job = excluded.job, until = null;
            end if;
          end if;
        end if;
        if x->>'to' = 'removed' then
          fence_top := greatest(fence_top, j.fence);
          delete from job where id = j.id;
          delete from log where job = j.id;
          delete from step where job = j.id;
          delete from edge where dependent = j.id;
          if j.dedup is not null then delete from key y where y.key = dedup_key and y.job = j.id and y.until is null; end if;
          c_of := c_of || j.lane; c_n := c_n || -1;
          c_what := c_what || case when j.kind = 'job' then j.state else 'schedule' end;
          if j.state = 'active' then credited := credited || j.queue; end if;
          if recording then ev := ev || job_event_{V}('removed', j, t, null); end if;
        else
          f := x->'set';
          a := j;
          if x ? 'edges' then
            ${wantedEdges}
          end if;
          a.fence := j.fence + 1;
          a.touched := true;
          if f ? 'attempt' then a.attempt := (f->>'attempt')::int; end if;
          if f ? 'stalls' then a.stalls := (f->>'stalls')::int; end if;
          if f ? 'd' then a.data := f->>'d'; end if;
          if f ? 'p' then a.priority := (f->>'p')::bigint; end if;
          if f ? 'ra' then a.run_at := (f->>'ra')::bigint; elsif f ? 'ri' then a.run_at := t + (f->>'ri')::bigint; end if;
          if f ? 'error' then
            a.error := f->>'error';
            if a.error is not null then
              a.errors := coalesce(j.errors[greatest(1, cardinality(j.errors) - ${ERRORS_KEPT - 2}):], '{}')
                || format('{"fence":%s,"attempt":%s,"at":%s,%s', j.fence, j.attempt, t, substr(a.error, 2));
            end if;
          end if;
          if x ? 'cb' then
            update edge set state = 'closed' where dependent = j.id and state = 'broken';
            get diagnostics got = row_count;
            a.pending := a.pending - got;
            a.broken_at := null;
          end if;
          if x ? 'edges' then
            ${writeEdges}
          end if;
          if x ? 'ro' then
            update edge d set state = y.state, result = y.result, error = null
              from unnest(ew.positions, ew.states, ew.results) y(position, state, result) where d.dependent = j.id and d.position = y.position;
            a.pending := a.pending + coalesce(ew.more, 0);
            if not ew.broken then a.broken_at := null; end if;
          end if;
          goes_on := x->>'to' = 'waiting-children' and a.pending = 0;
          a.state := case when goes_on then case when a.run_at > t then 'delayed' else 'waiting' end else x->>'to' end;
          if a.state = 'waiting' then
            a.run_at := null;
            if a.grp is not null then
              -- A turn is only comparable within its priority.
              if a.priority <> j.priority or (j.state <> 'waiting' and (x ? 'new' or goes_on)) then a.ord := (next_turns_{V}(a.queue, a.grp, a.priority))[1]; end if;
            elsif j.state <> 'waiting' and (x ? 'new' or goes_on) then
              new_ord := nextval('{S}.job_order');
              a.ord := case when j.ord < 0 then -1 - new_ord else new_ord end;
            end if;
          end if;
          if a.state <> 'active' then
            a.lease_until := null; a.ahead := false; a.claim := null;
            if a.state not in ('completed', 'failed', 'cancelled') or (a.state = 'completed' and j.state <> 'completed' and not x ? 'held') then a.worker := null; end if;
          end if;
          if a.state <> j.state and was_done then
            a.finished_at := null; a.stale_at := null; a.delete_at := null; a.result := null; a.stale := false;
          end if;
          if a.state <> j.state and ends then a.finished_at := t; end if;
          if f ? 'result' then a.result := f->>'result'; end if;
          if f ? 'memo' then a.memo := f->>'memo'; end if;
          if f ? 'si' then a.stale_at := t + (f->>'si')::bigint; end if;
          if f ? 'di' then a.delete_at := t + (f->>'di')::bigint; end if;
          if f ? 'stale' then a.stale := true; end if;
          a.due_at := due_at_{V}(a);
          update job set 
            (state, priority, ord, fence, attempt, worker, claim, run_at, lease_until, broken_at, stale_at, stale, delete_at, due_at, pending,
             stalls, ahead, touched, data, result, error, errors, finished_at, memo) =
            (a.state, a.priority, a.ord, a.fence, a.attempt, a.worker, a.claim, a.run_at, a.lease_until, a.broken_at, a.stale_at, a.stale, a.delete_at, a.due_at,
             a.pending, a.stalls, a.ahead, true, a.data, a.result, a.error, a.errors, a.finished_at, a.memo) where id = a.id;
          if j.dedup is not null and ends then delete from key y where y.key = dedup_key and y.job = j.id and y.until is null; end if;
          if x ? 'why' and recording then ev := ev || job_event_{V}(x->>'why', a, t, j.worker); end if;
          if a.state <> j.state then
            if recording then ev := ev || state_event_{V}(a, t); end if;
            if j.state = 'active' then credited := credited || j.queue; end if;
            if a.kind = 'job' then
              c_of := c_of || a.lane || a.lane; c_what := c_what || j.state || a.state; c_n := c_n || -1 || 1;
              if ends then c_of := c_of || a.queue; c_what := c_what || ('+' || a.state); c_n := c_n || 1; end if;
            end if;
          end if;
          if a.state = 'waiting' and a.kind = 'job' and (j.state <> 'waiting' or (a.priority, a.ord) < (j.priority, j.ord)) then
            w_lane := w_lane || a.lane; w_p := w_p || a.priority; w_o := w_o || a.ord;
          end if;
          if a.kind = 'job' and x->>'why' in ('retrying', 'stalled') then
            c_of := c_of || a.queue; c_n := c_n || 1;
            c_what := c_what || case x->>'why' when 'retrying' then '+retried' else '+stalled' end;
          end if;
          if a.due_at is not null and a.state <> 'active' and (a.state <> j.state or a.due_at is distinct from j.due_at) then
            d_queue := d_queue || a.queue; d_at := d_at || a.due_at;
          end if;
        end if;
        if j.state = 'active' and not x ? 'held' and x->>'to' <> 'active' then
          -- Another caller moved an active job: its worker is notified, and its lease counts against limits until it
          -- expires.
          if j.lease_until > t then
            insert into orphan (id, fence, lane, until, grp, worker) values (j.id, j.fence, j.lane, j.lease_until, j.grp, j.worker)
              on conflict (id, fence) do update set lane = excluded.lane, until = excluded.until, grp = excluded.grp, worker = excluded.worker;
          end if;
          if j.worker is not null then
            rv := rv || json_strip_nulls(json_build_object('id', j.id, 'fence', j.fence, 'worker', j.worker, 'reason', case
              when x->>'to' in ('removed', 'cancelled') then x->>'to'
              when x->>'to' = 'completed' or (x->>'to' = 'failed' and j.lease_until > t) then 'completed-elsewhere'
              else 'lease-lost' end,
              'cancelReason', case when x->>'to' = 'cancelled' and a.error::json->>'name' = 'JobCancelled' then a.error::json->>'message' end))::text;
          end if;
        end if;
`
