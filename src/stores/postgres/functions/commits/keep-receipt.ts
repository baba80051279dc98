// stores/postgres/functions/commits/keep-receipt.ts: the function that records that a batch was applied.

export const keepReceipt = `
-- Stores the answer to a batch in the row of its writer, for a replay, and adds what the batch has counted: \`ns\` of each
-- of \`whats\` in the lanes or queues \`ofs\`.
create or replace function {S}.keep_receipt_{V}(by text, number bigint, t bigint, answer text, ofs int[], whats text[], ns int[]) returns void
  language plpgsql volatile
as $$
begin
  update writer w set seq = number, at = t, receipt = answer, counts = w.counts || coalesce((
      select jsonb_object_agg(y.k, coalesce((w.counts->>y.k)::bigint, 0) + y.n)
      from (select z.of || ' ' || z.what as k, sum(z.n) as n from unnest(ofs, whats, ns) z(of, what, n) group by 1) y), '{}')
    where w.id = by;
  if not found then
    insert into writer (id, seq, at, receipt, counts) values (by, number, t, answer, coalesce((
      select jsonb_object_agg(y.k, y.n)
      from (select z.of || ' ' || z.what as k, sum(z.n) as n from unnest(ofs, whats, ns) z(of, what, n) group by 1) y), '{}'));
  end if;
end $$;
`
