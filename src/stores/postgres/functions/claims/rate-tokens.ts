// stores/postgres/functions/claims/rate-tokens.ts: the functions that count the tokens of rates, as job/limits.ts does.
import { BUCKETS } from '../../../../job/limits.js'

/** A claim calls them with the row of the queue locked. */
export const rateTokens = `
-- How many more claims a rate allows now, and when the first token that was taken returns. A token that was taken more
-- than one interval in the future counts as returned: the clock was set back since.
create or replace function {S}.tokens_left_{V}(of int, key text, rate numeric[], t bigint, out remain numeric, out back bigint) language sql stable as $$
  select greatest(0, rate[1] - coalesce(sum(y.n), 0)),
    case when rate[1] > 0 then ceil(coalesce(min(y.at), ceil(t / p.part) * p.part) + rate[2])::bigint end
  from (select greatest(1, floor(rate[2] / ${BUCKETS})) as part) p
  left join lateral (select u.at, u.n from {S}.rate r cross join lateral unnest(r.at, r.n) u(at, n)
                     where r.queue = of and r.scope = key and u.at + rate[2] > t and u.at <= ceil(t / p.part) * p.part + rate[2]) y on true
  group by p.part
$$;

-- Takes tokens.
create or replace function {S}.take_tokens_{V}(of int, key text, rate numeric[], count int, t bigint) returns void language plpgsql volatile as $$
declare
  part numeric := greatest(1, floor(rate[2] / ${BUCKETS}));
  now_at bigint := ceil(t / part) * part;
  ats bigint[];
  ns bigint[];
  many int;
begin
  select array_agg(u.at order by u.i), array_agg(u.n order by u.i) into ats, ns
    from {S}.rate r cross join lateral unnest(r.at, r.n) with ordinality u(at, n, i) where r.queue = of and r.scope = key and u.at + rate[2] > t and u.at <= now_at + rate[2];
  many := cardinality(ats);
  if many > 0 and ats[many] >= now_at then ns[many] := ns[many] + count;
  else ats := ats || now_at; ns := ns || count::bigint; end if;
  insert into {S}.rate as r values (of, key, ats, ns, ats[cardinality(ats)] + rate[2])
    on conflict (queue, scope) do update set at = excluded.at, n = excluded.n, until = excluded.until;
end $$;

-- What a limit on claims allows now, beside so many active leases: how many claims, the tokens of its rate, when the first
-- token returns, and the rate. \`of\` is the id of its queue and what it bounds there: '', a name ('n…') or a group ('g…').
create or replace function {S}.limit_left_{V}(of text, bound jsonb, active numeric, t bigint, out remaining numeric, out tokens numeric, out back bigint, out rate numeric[])
  language plpgsql stable
as $$
begin
  remaining := number_{V}(bound->'concurrency') - active;
  rate := rate_of_{V}(bound);
  if rate is null then rate := '{0,0}';
  else select y.remain, y.back into tokens, back from tokens_left_{V}(split_part(of, ' ', 1)::int, substr(of, strpos(of, ' ') + 1), rate, t) y;
  end if;
end $$;
`
