// Functions of the schema look for names in the schema alone, whatever the path of their caller: in PostgreSQL 14 anybody may
// create functions in `public`, and one whose arguments fit better is taken before that of the system.
import { beforeAll, expect, test } from 'vitest'
import { postgres } from 'millrace/postgres'
import { parameterTypes } from '../../../../src/stores/postgres/calls.js'
import { VERSION } from '../../../../src/stores/postgres/schema.js'
import { closing, newQueue } from '../../../setup.js'
import { newDatabase } from '../server/shared.js'
import { rows, run } from '../server/clients.js'

let url = ''

beforeAll(async () => {
  url = await newDatabase()
  const first = postgres(url)
  await first.open()
  await first.close()
})

test('every function that is called from outside is pinned to the schema', async () => {
  const functions = await rows<{ name: string; path: string | null }>(
    url,
    `select p.proname as name, (select s from unnest(p.proconfig) s where s like 'search_path=%') as path
       from pg_proc p where p.pronamespace = 'millrace'::regnamespace and p.proname = any ($1)`,
    [['add_job', ...Object.keys(parameterTypes).map((name) => `${name}_v${VERSION}`)]],
  )
  expect(functions).toHaveLength(Object.keys(parameterTypes).length + 1)
  expect(functions.filter(({ path }) => path !== 'search_path=millrace, pg_temp')).toEqual([])
})

test('what stands in the path of the caller is not taken for what the functions call', async () => {
  const hijacked = `returns bigint language plpgsql as $$ begin raise exception 'hijacked'; end $$`
  await run(
    url,
    `create schema theirs;
     create function theirs.hashtextextended(text, int) ${hijacked};
     create function theirs.hashtextextended(text, bigint) ${hijacked};
     create function theirs.to_json(text) returns json language plpgsql as $$ begin raise exception 'hijacked'; end $$;
     create table theirs.job (id text); create table theirs.cell (key text);`,
  )
  const target = new URL(url)
  target.searchParams.set('options', '-c search_path=theirs,pg_catalog,public')
  const queue = newQueue({ store: closing(postgres(target.href)) })
  await queue.add('one')
  await queue.addBulk(Array.from({ length: 3 }, (_, at) => ({ name: 'many', data: at })))
  await queue.add('grouped', 1, { group: 'g' })
  await queue.add('other', 1, { id: 'own id', dedup: { key: 'key' } })
  await run(target.href, `select millrace.add_job('work', 'from SQL', '1', '{"delay":"5 minutes","group":"g"}')`)
  expect(await queue.counts()).toMatchObject({ waiting: 6, delayed: 1 })
})
