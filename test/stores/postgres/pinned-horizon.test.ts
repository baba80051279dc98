// An open transaction keeps PostgreSQL from removing dead rows. Claims and completions do not read them again and again.
import { expect, test } from 'vitest'
import { postgres } from 'millrace/postgres'
import { VERSION } from '../../../src/stores/postgres/schema.js'
import { connected, rows, run } from './server/clients.js'
import { newDatabase } from './server/shared.js'

const EACH = 50
const ROUNDS = 40

test('claims and completions read no more pages while a transaction stays open', async () => {
  const url = await newDatabase()
  const store = postgres(url)
  await store.open()
  await store.close()
  await run(
    url,
    `select millrace.lane_ids_v${VERSION}('[["mill", "a", 1, false]]'::jsonb, false);
     insert into millrace.job (id, seq, queue, lane, state, priority, ord, fence, attempts, created_at, data)
       select 'job ' || n, n, l.queue, l.id, 'waiting', 0, n, 0, 3, 0, to_json(repeat('x', 1500))
       from generate_series(1, ${EACH * ROUNDS + 1}) n, millrace.lane l`,
  )
  const [lane] = await rows<{ id: number }>(url, 'select id from millrace.lane')
  const open = await connected(url)
  await open.query('begin isolation level repeatable read; select pg_current_xact_id()')
  const client = await connected(url)
  const pages = async (call: string): Promise<number> => {
    const explained = await client.query(`explain (analyze, buffers, format json) select millrace.${call}`)
    const { Plan } = explained.rows[0]['QUERY PLAN'][0]
    return Plan['Shared Hit Blocks'] + Plan['Shared Read Blocks']
  }

  const claims: number[] = []
  const completions: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const done = round * EACH
    const cursors = JSON.stringify({ [lane!.id]: [0, done] })
    claims.push(
      await pages(`fast_claim_v${VERSION}('writer', ${2 * round + 1}, 'origin', 'worker', '{mill}', '{limit:mill}', '{a}', '{""}',
        '{600000}', null, ${EACH}, 0, '${cursors}', null)`),
    )
    const ids = Array.from({ length: EACH }, (_, at) => `job ${done + at + 1}`)
    completions.push(
      await pages(`fast_complete_v${VERSION}('writer', ${2 * round + 2}, 'origin', array_to_string('{${ids.join()}}'::text[], chr(31)), '1',
        null, null)`),
    )
  }
  const [counted] = await rows(url, `select count(*)::int as n from millrace.job where state = 'completed'`)
  expect(counted).toEqual({ n: EACH * ROUNDS })
  // The first calls also read the catalog.
  const middle = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)]!
  for (const each of [claims, completions]) {
    expect(middle(each.slice(-10))).toBeLessThan(1.2 * middle(each.slice(5, 15)))
  }
})
