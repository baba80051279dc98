// scripts/http-docs.ts: writes the table of routes in docs/http.md, and docs/openapi.json, from the table in the code;
// with --check fails if they are out of date.
import { readFile, writeFile } from 'node:fs/promises'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { openApi } from '../src/server/openapi.js'
import type { Route } from '../src/server/route.js'
import { routes } from '../src/server/routes.js'
import { rights } from '../src/server/store-protocol/rights.js'
import type { JsonSchema } from '../src/server/shape.js'
import { VERSION } from '../src/server/version.js'

const page = fileURLToPath(new URL('../docs/http.md', import.meta.url))
const document = fileURLToPath(new URL('../docs/openapi.json', import.meta.url))

const BEGIN = '<!-- routes: written by `npm run docs:http` -->'
const END = '<!-- end of routes -->'

/** The heading of the routes that a role opens. Those of several roles stand under the first of them. */
const headings = {
  open: 'Open to everybody',
  token: 'For any token',
  produce: 'Adding jobs',
  work: 'Working on jobs',
  read: 'Reading',
  admin: 'Operating',
} as const

type Heading = keyof typeof headings

function headingOf({ access }: Route): Heading {
  return typeof access === 'string' ? access : access[0]!
}

/** The names of fields, the optional ones with a question mark. */
function namesOf(names: readonly string[], isOptional: (name: string) => boolean): string {
  return names.map((name) => `\`${name}${isOptional(name) ? '?' : ''}\``).join(', ')
}

function bodyOf({ schema }: NonNullable<Route['body']>): string {
  const { properties = {}, required = [] } = schema as { properties?: JsonSchema; required?: readonly string[] }
  return namesOf(Object.keys(properties), (name) => !required.includes(name)) || 'JSON'
}

function takes({ body, query = {} }: Route): string {
  const parts = body === undefined ? [] : [bodyOf(body)]
  const names = Object.keys(query)
  if (names.length > 0) parts.push(`query: ${namesOf(names, (name) => 'optional' in query[name]!)}`)
  return parts.join('; ')
}

function row(route: Route): string {
  const { method, path, access, summary, answers, errors } = route
  const roles = typeof access === 'string' ? '' : access.join(', ')
  const answered = Object.entries(answers).map(([status, { description }]) => `${status}: ${description}`)
  const cells = [`${method} \`${path}\``, roles, summary, takes(route), answered.join(' '), errors.join(', ')]
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
}

function tables(): string {
  const sections = (Object.keys(headings) as Heading[]).map((heading) => {
    const rows = routes.filter((route) => headingOf(route) === heading).map(row)
    const head = '| route | role | does | takes | answers | errors |\n|---|---|---|---|---|---|'
    return rows.length === 0 ? '' : `\n### ${headings[heading]}\n\n${head}\n${rows.join('\n')}\n`
  })
  return `${BEGIN}\n${sections.join('')}\n${END}`
}

const RIGHTS_BEGIN = '<!-- rights: written by `npm run docs:http` -->'
const RIGHTS_END = '<!-- end of rights -->'

function rightsTable(): string {
  const rows = Object.values(rights).map(
    ({ what, may }) => `| ${what} | ${may.read} | ${may.produce} | ${may.work} | ${may.admin} |`,
  )
  const head = '| a remote store may | read | produce | work | admin |\n|---|---|---|---|---|'
  return `${RIGHTS_BEGIN}\n\n${head}\n${rows.join('\n')}\n\n${RIGHTS_END}`
}

/** What the page must be, given the prose that it has. */
export function expectedPage(written: string): string {
  const withRights = between(written, RIGHTS_BEGIN, RIGHTS_END, rightsTable())
  return between(withRights, BEGIN, END, tables())
}

/** Replaces what stands from one mark to another, both included. */
function between(text: string, begin: string, end: string, table: string): string {
  const [before, rest] = split(text, begin)
  const [, after] = split(rest, end)
  return `${before}${table}${after}`
}

function split(text: string, mark: string): readonly [string, string] {
  const at = text.indexOf(mark)
  if (at === -1) throw new Error(`docs/http.md has no line ${mark}`)
  return [text.slice(0, at), text.slice(at + mark.length)]
}

/** What the document must be. */
export function expectedDocument(): string {
  return `${JSON.stringify(openApi(routes, VERSION), undefined, 2)}\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const written = await readFile(page, 'utf8')
  const [nextPage, nextDocument] = [expectedPage(written), expectedDocument()]
  if (process.argv.includes('--check')) {
    const same = written === nextPage && (await readFile(document, 'utf8').catch(() => '')) === nextDocument
    if (!same) {
      console.error('docs/http.md or docs/openapi.json differs from the routes in src/server: run `npm run docs:http`.')
      process.exitCode = 1
    }
  } else {
    await writeFile(page, nextPage)
    await writeFile(document, nextDocument)
  }
}
