// Checks the walls between the rooms of src/: which room may import which, no default exports, no cycles.
// Usage: tsx scripts/walls.ts [folder]   (default: src)
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { parseSync, Visitor, type StringLiteral } from 'oxc-parser'

/** Each room, and the other rooms it may import. Doors (files directly in src/) may import any room. */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  job: [],
  store: ['job'],
  conformance: ['job', 'store'],
  engine: ['job', 'store'],
  stores: ['job', 'store', 'engine'],
  queue: ['job', 'store'],
  worker: ['job', 'store', 'queue', 'upkeep'],
  upkeep: ['job', 'store', 'queue'],
  features: ['job', 'store', 'queue', 'worker', 'upkeep'],
  server: ['job', 'store', 'queue', 'worker', 'upkeep', 'features'],
  cli: ['job', 'store', 'queue', 'worker', 'upkeep', 'features'],
  testing: ['job', 'store', 'stores', 'queue', 'worker', 'upkeep', 'features', 'server', 'cli'],
}

/** A wall inside a room: files whose paths match `from` do not import files whose paths match `to`. */
interface Wall {
  readonly from: RegExp
  readonly to: RegExp
  readonly rule: string
}

/** The walls inside rooms. */
const WALLS: readonly Wall[] = [
  {
    from: /^stores\/(?!memory\/)/,
    to: /^stores\/memory\//,
    rule: 'a store does not import another store',
  },
  {
    from: /^stores\/(?!sqlite\/)/,
    to: /^stores\/sqlite\//,
    rule: 'a store does not import another store',
  },
  {
    from: /^stores\/(?!postgres\/)/,
    to: /^stores\/postgres\//,
    rule: 'a store does not import another store',
  },
  {
    from: /^stores\/(?!http\/)/,
    to: /^stores\/http\//,
    rule: 'a store does not import another store',
  },
  {
    from: /^stores\/postgres\/drivers\//,
    to: /^stores\/postgres\/(functions\/|engine\/|store\.|decode|events\/|fast-)/,
    rule: 'drivers know nothing of what is sent through them',
  },
  {
    from: /^stores\/postgres\/functions\//,
    to: /^stores\/postgres\/(?!functions\/)/,
    rule: 'functions are SQL: they import constants of job and store alone',
  },
  {
    from: /^(?!stores\/)/,
    to: /\/fast-[^/]*$/,
    rule: 'only its store imports a fast path',
  },
  {
    from: /^worker\/(attempt|phases|batches)\//,
    to: /^worker\/(worker|runner|claimer|slots|settlements|registry|close|shutdown)\./,
    rule: 'an attempt knows nothing of the worker that runs it',
  },
  {
    from: /^queue\/(operations|settings|events)\//,
    to: /^queue\/(queue|add)\./,
    rule: 'what a queue is made of does not import the queue',
  },
  {
    from: /^testing\/check\//,
    to: /^(stores|worker|upkeep|testing\/(play|simulate|seeds))/,
    rule: 'the checker shares no code with what it checks',
  },
]

/** Names of states, which are rules of `job`, and the files of stores that may name them: what is, or decodes, a statement. */
const STATES = new Set(['waiting', 'delayed', 'waiting-children', 'active', 'completed', 'failed', 'cancelled'])
const MAY_NAME_STATES =
  /^stores\/[^/]+\/(functions\/|(schema|statement-texts|filter-sql|rows|read|find|fast-[^/]*)\.ts$)/

interface Import {
  readonly line: number
  /** The text between the quotes. */
  readonly specifier: string
}

interface SourceFile {
  /** Path from the folder, with forward slashes: `job/retry.ts`. */
  readonly path: string
  readonly imports: readonly Import[]
  /** Lines that export a default. */
  readonly defaults: readonly number[]
  /** Lines that name a state. */
  readonly states: readonly number[]
}

interface Breach {
  readonly path: string
  readonly line: number
  readonly what: string
  readonly rule: string
}

const posix = (path: string): string => path.split(sep).join('/')
const isRelative = (specifier: string): boolean => /^\.\.?(\/|$)/.test(specifier)

/** The room a file lives in, or undefined for a door. */
function roomOf(path: string): string | undefined {
  const slash = path.indexOf('/')
  return slash === -1 ? undefined : path.slice(0, slash)
}

/** Reads every import of a file, type-only and dynamic ones included. */
function read(root: string, path: string): SourceFile {
  const text = readFileSync(join(root, path), 'utf8')
  const { program, errors } = parseSync(path, text)
  if (errors[0]) throw new Error(`${path} cannot be parsed: ${errors[0].message}`)

  const lineAt = (offset: number): number => text.slice(0, offset).split('\n').length
  const imports: Import[] = []
  const defaults: number[] = []
  const states: number[] = []
  const add = (source: StringLiteral): void => {
    imports.push({ line: lineAt(source.start), specifier: source.value })
  }
  new Visitor({
    Literal(node) {
      if (typeof node.value === 'string' && STATES.has(node.value)) states.push(lineAt(node.start))
    },
    ImportDeclaration: (node) => add(node.source),
    ExportAllDeclaration: (node) => add(node.source),
    ExportNamedDeclaration(node) {
      if (node.source) add(node.source)
      for (const { exported } of node.specifiers) {
        const name = exported.type === 'Literal' ? exported.value : exported.name
        if (name === 'default') defaults.push(lineAt(exported.start))
      }
    },
    ExportDefaultDeclaration: (node) => void defaults.push(lineAt(node.start)),
    ImportExpression(node) {
      if (node.source.type === 'Literal' && typeof node.source.value === 'string') add(node.source)
    },
    TSImportType: (node) => add(node.source),
    TSExternalModuleReference: (node) => add(node.expression),
  }).visit(program)
  return { path, imports: imports.toSorted((a, b) => a.line - b.line), defaults, states }
}

/** The file an import leads to, as a path from the folder; it starts with `../` when it leaves the folder. */
function targetOf(root: string, from: string, specifier: string): string {
  const plain = resolve(root, dirname(from), specifier)
  const candidates = [plain.replace(/\.js$/, '.ts'), `${plain}.ts`, join(plain, 'index.ts')]
  return posix(relative(root, candidates.find((path) => path.endsWith('.ts') && existsSync(path)) ?? plain))
}

/** The rule one import breaks, or undefined. */
function ruleBroken(root: string, from: string, specifier: string): string | undefined {
  const room = roomOf(from)
  const inConformance = room === 'conformance'

  if (!isRelative(specifier)) {
    if (/^(millrace(\/|$)|src\/|[#/~])/.test(specifier)) return 'imports within src are relative'
    if (room === 'job' && isBuiltin(specifier)) return 'job is pure: it imports no Node builtins'
    if (inConformance && specifier !== 'node:assert/strict') return 'conformance imports only job and store'
    return undefined
  }

  const target = targetOf(root, from, specifier)
  if (target.startsWith('../')) return 'imports stay within src'
  if (room === undefined) return undefined

  const targetRoom = roomOf(target)
  if (targetRoom === undefined) return 'no room imports a door: doors are for users'
  const wall = WALLS.find((each) => each.from.test(from) && each.to.test(target))
  if (wall !== undefined) return wall.rule
  if (targetRoom === room) return undefined
  const allowed = ROOMS[room]
  if (!allowed || allowed.includes(targetRoom)) return undefined // an unknown room is reported once, by itself
  if (inConformance) return 'conformance imports only job and store'
  if (room === 'job') return 'job is pure: it imports no other room'
  if (targetRoom === 'stores') return 'only doors join stores to the rest'
  return `${room} may import ${allowed.join(', ')}`
}

/** One breach for each set of files that import each other, described by a shortest cycle through it. */
function cycles(root: string, files: readonly SourceFile[]): Breach[] {
  const edges = new Map<string, Map<string, Import>>()
  for (const file of files) {
    const targets = new Map<string, Import>()
    for (const found of file.imports.filter(({ specifier }) => isRelative(specifier))) {
      const target = targetOf(root, file.path, found.specifier)
      if (!targets.has(target)) targets.set(target, found)
    }
    edges.set(file.path, targets)
  }

  const reported = new Set<string>()
  const breaches: Breach[] = []
  for (const { path } of files) {
    if (reported.has(path)) continue
    const cycle = shortestCycle(path, edges)
    if (!cycle) continue
    for (const member of cycle) reported.add(member)
    const first = edges.get(path)?.get(cycle[1] ?? path)
    breaches.push({
      path,
      line: first?.line ?? 1,
      what: `imports '${first?.specifier}'`,
      rule: `no cycles between files: ${[...cycle, path].join(' → ')}`,
    })
  }
  return breaches
}

/** The files of a shortest cycle through `start`, found by breadth-first search. */
function shortestCycle(
  start: string,
  edges: ReadonlyMap<string, ReadonlyMap<string, Import>>,
): readonly string[] | undefined {
  const seen = new Set<string>()
  let paths: string[][] = [[start]]
  while (paths.length > 0) {
    const longer: string[][] = []
    for (const path of paths) {
      for (const target of edges.get(path.at(-1) ?? start)?.keys() ?? []) {
        if (target === start) return path
        if (seen.has(target)) continue
        seen.add(target)
        longer.push([...path, target])
      }
    }
    paths = longer
  }
  return undefined
}

function check(root: string): { readonly files: number; readonly breaches: readonly Breach[] } {
  const paths = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .map(posix)
    .filter((path) => path.endsWith('.ts'))
    .toSorted()
  const files = paths.map((path) => read(root, path))
  const breaches: Breach[] = []

  for (const { path, imports, defaults, states } of files) {
    const room = roomOf(path)
    if (room !== undefined && !(room in ROOMS)) {
      breaches.push({ path, line: 1, what: `is in '${room}'`, rule: 'every room has its line in scripts/walls.ts' })
    }
    for (const line of defaults) breaches.push({ path, line, what: 'exports a default', rule: 'no default exports' })
    for (const line of room === 'stores' && !MAY_NAME_STATES.test(path) ? states : []) {
      const rule = 'stores name states in schemas, statements and fast paths alone'
      breaches.push({ path, line, what: 'names a state', rule })
    }
    for (const { line, specifier } of imports) {
      const rule = ruleBroken(root, path, specifier)
      if (rule) breaches.push({ path, line, what: `imports '${specifier}'`, rule })
    }
  }
  return { files: files.length, breaches: [...breaches, ...cycles(root, files)] }
}

const root = resolve(process.argv[2] ?? 'src')
const { files, breaches } = check(root)
for (const { path, line, what, rule } of breaches) {
  console.error(`${posix(relative(process.cwd(), join(root, path)))}:${line} ${what}\n  rule: ${rule}`)
}
if (breaches.length > 0) {
  console.error(`\nwalls: ${breaches.length} broken in ${files} files`)
  process.exitCode = 1
} else {
  console.log(`walls: all hold in ${files} files`)
}
