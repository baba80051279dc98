// Each SQL function stands in its file as one whole statement: PostgreSQL loads every file by itself, and no piece of SQL is
// put together from others.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { functionFiles } from '../../../../src/stores/postgres/functions/all.js'
import { migrationSql, withSchema } from '../../../../src/stores/postgres/migrate.js'
import { newDatabase } from '../server/shared.js'
import { rows, run } from '../server/clients.js'

const folder = join(import.meta.dirname, '../../../../src/stores/postgres/functions')

/** The holes in template texts, with the file of each: `${…}`. */
const holes = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts'))
  .flatMap((path) => {
    const text = readFileSync(join(folder, path), 'utf8')
    const sql = [...text.matchAll(/= `\n(.*?)\n`\n/gs)].map(([, each]) => each!)
    return sql.flatMap((each) => [...each.matchAll(/\$\{(.*?)\}/g)].map(([, hole]) => ({ path, hole: hole! })))
  })

/** Values that a statement takes from the rest of the package: numbers, names of states, separators, lists of columns. */
const VALUE = /^[A-Z][A-Z_]*$/
/** The settings of a function. */
const SETTINGS = new Set(['searchPath', 'readSettings', 'writeSettings'])
/** Files whose statements are still put together. */
const PUT_TOGETHER = new Set(['find.ts', 'heads.ts', 'pages.ts', 'reads.ts'])

let url = ''

beforeAll(async () => {
  url = await newDatabase()
  await run(url, migrationSql())
})

/** Every function of the schema as PostgreSQL stores it. */
const stored = (): Promise<{ text: string }[]> =>
  rows(
    url,
    `select pg_get_functiondef(p.oid) as text from pg_proc p where p.pronamespace = 'millrace'::regnamespace order by 1`,
  )

test.each(Object.entries(functionFiles))('PostgreSQL loads %s by itself, to the same functions', async (_name, sql) => {
  const before = await stored()
  await run(url, withSchema(sql, 'millrace'))
  expect(await stored()).toEqual(before)
})

test('every function of the schema is in one of these files, once', async () => {
  const names = Object.values(functionFiles).flatMap((sql) =>
    [...sql.matchAll(/create or replace function \{S\}\.(\w+?)(?:_\{V\})?\(/g)].map(([, name]) => name),
  )
  expect(names).toEqual([...new Set(names)])
  expect(await stored()).toHaveLength(names.length)
})

test('a statement takes values from the package, and no pieces of SQL', () => {
  const pieces = holes.filter(({ path, hole }) => !VALUE.test(hole) && !SETTINGS.has(hole) && !PUT_TOGETHER.has(path))
  expect(pieces).toEqual([])
  expect(holes.length).toBeGreaterThan(50)
})
