// stores/postgres/functions/heads.ts: the function that reads the heads of a queue's indexes.
import { DUE_READ, HEADS_READ } from '../../../store/tally.js'
import { RATES_READ } from '../../heads.js'
import { clock, readSettings } from './reads.js'

const waits = "j.state = 'waiting' and j.kind = 'job'"

/** Of a lane, the job that a condition puts first: its name, when it was added and when it was to run. */
const firstIn = (where: string, order: string): string =>
  `(select l.name, j.created_at, j.run_at from job j where j.lane = l.id and ${where} order by ${order} limit 1)`

/**
 * What stands first in the indexes of queues: of each lane the job to be claimed next and the job added first, the
 * active jobs whose leases expire first, and the rows that are due for longest. Reads no more, however many jobs there
 * are. In PL/pgSQL, as all functions that read: a function in SQL would be planned at each call.
 */
export const heads = `
create or replace function {S}.heads_{V}(asked jsonb, clock bigint) returns text language plpgsql stable ${readSettings} as $$
begin
  return (select coalesce(json_agg(json_build_object('queue', q.name, 'now', n.t,
    'waiting', (select coalesce(json_agg(json_build_array(y.name, y.created_at, y.run_at)), '[]') from lane l cross join lateral (
      ${firstIn(`not l.shared and ${waits} and j.grp is null`, 'j.priority, j.ord')}
      union all ${firstIn(`l.shared and j.grp is not null and ${waits}`, 'j.priority, j.ord, j.seq')}
      union all ${firstIn("j.state = 'waiting' and j.state <> 'active'", 'j.seq')}) y where l.queue = q.id),
    'running', (select coalesce(json_agg(json_build_array(l.name, y.started_at, y.grp)), '[]') from (
      select j.lane, j.started_at, j.ahead, j.grp from job j where j.queue = q.id and j.state = 'active' order by j.due_at limit ${HEADS_READ}) y
      join lane l on l.id = y.lane where not y.ahead),
    'due', (select coalesce(json_agg(json_build_array(y.kind, y.state, y.due_at) order by y.due_at), '[]') from (
      select j.kind, j.state, j.due_at from job j where j.queue = q.id and j.due_at is not null and j.state <> 'active' and j.due_at <= n.t
      order by j.due_at limit ${DUE_READ}) y),
    'lease', (select j.due_at from job j where j.queue = q.id and j.state = 'active' order by j.due_at limit 1),
    'rates', (select coalesce(json_agg(json_build_array(y.scope, y.at, y.n)), '[]') from (
      select r.scope, r.at, r.n from rate r where r.queue = q.id and (r.scope = '' or r.scope like 'n%') limit ${RATES_READ}) y)
  )), '[]')::text
  from queue q cross join (select ${clock} as t) n where asked is null or asked ? q.name);
end $$;
`
