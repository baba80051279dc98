// stores/postgres/functions/summed-counts.ts: the function that adds up the counts of all writers.

export const summedCounts = `
-- All counts, by lane or queue.
create or replace function {S}.counts_{V}() returns table (of int, what text, n numeric) language sql stable as $$
  select y.of, y.what, sum(y.n) from (
    select split_part(e.key, ' ', 1)::int as of, split_part(e.key, ' ', 2) as what, e.value::bigint as n
      from {S}.writer w cross join lateral jsonb_each_text(w.counts) e where w.counts <> '{}') y group by 1, 2
$$;
`
