// The walls between rooms: each kind of breach is named, and an honest tree passes.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'

type Tree = Readonly<Record<string, string>>

const script = resolve('scripts/walls.ts')
let folder: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-walls-'))
})

afterEach(() => {
  rmSync(folder, { recursive: true, force: true })
})

function walls(tree: Tree): { readonly status: number | null; readonly output: string } {
  for (const [path, text] of Object.entries(tree)) {
    const file = join(folder, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
  }
  const run = spawnSync(process.execPath, ['--import', 'tsx', script, folder], { encoding: 'utf8' })
  return { status: run.status, output: run.stdout + run.stderr }
}

/** Two lines that lead to the breach, so that a right line number is not a lucky one. */
const lead = `// a file\nconst x = 1\n`

const honest: Tree = {
  'index.ts': `export { add } from './queue/queue.js'\nexport { work } from './worker/worker.js'\n`,
  'memory.ts': `export { memory } from './stores/memory/store.js'\n`,
  'job/errors/errors.ts': `export const errors = 1\n`,
  'job/job.ts': `import { errors } from './errors.js'\nexport const job = errors\n`,
  'store/store.ts': `import type { job } from '../job/job.js'\nexport type Store = typeof job\n`,
  'conformance/suite.ts': `import { job } from '../job/job.js'\nimport type { Store } from '../store/store.js'\nexport const suite: Store = job\n`,
  'stores/memory/store.ts': `import { setTimeout } from 'node:timers/promises'\nimport type { Store } from '../../store/store.js'\nexport const memory: Store = 1\nvoid setTimeout\n`,
  'engine/reduce.ts': `import { job } from '../job/job.js'\nexport const reduce = [job, 'waiting']\n`,
  'stores/sqlite/fast-add.ts': `export const state = 'waiting'\n`,
  'queue/queue.ts': `import { job } from '../job/job.js'\nexport const add = job\n`,
  'worker/worker.ts': `import { add } from '../queue/queue.js'\nexport const work = add\n`,
  'upkeep/upkeep.ts': `import { add } from '../queue/queue.js'\nexport const due = add\n`,
  'features/webhooks.ts': `import { work } from '../worker/worker.js'\nimport { due } from '../upkeep/upkeep.js'\nexport const webhooks = work + due\n`,
  'server/server.ts': `import { webhooks } from '../features/webhooks.js'\nexport const server = webhooks\n`,
  'cli/cli.ts': `import { webhooks } from '../features/webhooks.js'\nexport const cli = webhooks\n`,
  'testing/simulator.ts': `import { memory } from '../stores/memory/store.js'\nimport { work } from '../worker/worker.js'\nexport const simulate = memory + work\n`,
}

interface Case {
  readonly rule: string
  readonly file: string
  readonly text: string
  readonly what: string
}

const imports = (specifier: string): { text: string; what: string } => ({
  text: `${lead}import { y } from '${specifier}'\n`,
  what: `imports '${specifier}'`,
})

const breaches: readonly Case[] = [
  { rule: 'job is pure: it imports no other room', file: 'job/bad.ts', ...imports('../store/store.js') },
  { rule: 'job is pure: it imports no Node builtins', file: 'job/bad.ts', ...imports('node:crypto') },
  { rule: 'job is pure: it imports no Node builtins', file: 'job/bad.ts', ...imports('crypto') },
  { rule: 'store may import job', file: 'store/bad.ts', ...imports('../queue/queue.js') },
  { rule: 'only doors join stores to the rest', file: 'store/bad.ts', ...imports('../stores/memory/store.js') },
  {
    rule: 'conformance imports only job and store',
    file: 'conformance/bad.ts',
    ...imports('../queue/queue.js'),
  },
  { rule: 'conformance imports only job and store', file: 'conformance/bad.ts', ...imports('vitest') },
  { rule: 'a store does not import another store', file: 'stores/sqlite/bad.ts', ...imports('../memory/store.js') },
  { rule: 'store may import job', file: 'store/bad.ts', ...imports('../engine/reduce.js') },
  { rule: 'engine may import job, store', file: 'engine/bad.ts', ...imports('../queue/queue.js') },
  {
    rule: 'only its store imports a fast path',
    file: 'testing/bad.ts',
    ...imports('../stores/sqlite/fast-add.js'),
  },
  {
    rule: 'stores name states in schemas, statements and fast paths alone',
    file: 'stores/memory/bad.ts',
    text: `${lead}export const isDone = (state: string): boolean => state === 'completed'\n`,
    what: 'names a state',
  },
  { rule: 'a store does not import another store', file: 'stores/bad.ts', ...imports('./memory/store.js') },
  {
    rule: 'drivers know nothing of what is sent through them',
    file: 'stores/postgres/drivers/bad.ts',
    ...imports('../engine/workspace.js'),
  },
  {
    rule: 'functions are SQL: they import constants of job and store alone',
    file: 'stores/postgres/functions/bad.ts',
    ...imports('../rows.js'),
  },
  {
    rule: 'an attempt knows nothing of the worker that runs it',
    file: 'worker/attempt/transaction/bad.ts',
    ...imports('../../slots.js'),
  },
  {
    rule: 'an attempt knows nothing of the worker that runs it',
    file: 'worker/phases/bad.ts',
    ...imports('../worker.js'),
  },
  {
    rule: 'what a queue is made of does not import the queue',
    file: 'queue/operations/bad.ts',
    ...imports('../queue.js'),
  },
  {
    rule: 'the checker shares no code with what it checks',
    file: 'testing/check/bad.ts',
    ...imports('../../worker/worker.js'),
  },
  { rule: 'stores may import job, store', file: 'stores/bad.ts', ...imports('../queue/queue.js') },
  { rule: 'stores may import job, store', file: 'stores/bad.ts', ...imports('../worker/worker.js') },
  { rule: 'only doors join stores to the rest', file: 'queue/bad.ts', ...imports('../stores/memory/store.js') },
  { rule: 'queue may import job, store', file: 'queue/bad.ts', ...imports('../worker/worker.js') },
  { rule: 'only doors join stores to the rest', file: 'worker/bad.ts', ...imports('../stores/memory/store.js') },
  { rule: 'worker may import job, store, queue, upkeep', file: 'worker/bad.ts', ...imports('../features/webhooks.js') },
  { rule: 'upkeep may import job, store, queue', file: 'upkeep/bad.ts', ...imports('../worker/worker.js') },
  { rule: 'features may import', file: 'features/bad.ts', ...imports('../server/server.js') },
  { rule: 'server may import', file: 'server/bad.ts', ...imports('../cli/cli.js') },
  { rule: 'worker may import job, store, queue, upkeep', file: 'worker/bad.ts', ...imports('../testing/simulator.js') },
  { rule: 'no room imports a door', file: 'worker/bad.ts', ...imports('../index.js') },
  { rule: 'imports within src are relative', file: 'worker/bad.ts', ...imports('millrace/memory') },
  { rule: 'imports stay within src', file: 'worker/bad.ts', ...imports('../../test/thing.js') },
  { rule: 'every room has its line', file: 'attic/bad.ts', text: `export const y = 1\n`, what: `is in 'attic'` },
  {
    rule: 'no default exports',
    file: 'queue/bad.ts',
    text: `${lead}export default x\n`,
    what: 'exports a default',
  },
  {
    rule: 'no default exports',
    file: 'queue/bad.ts',
    text: `${lead}export { x as default }\n`,
    what: 'exports a default',
  },
  {
    rule: 'only doors join stores to the rest',
    file: 'queue/bad.ts',
    text: `${lead}export const load = () => import('../stores/memory/store.js')\n`,
    what: `imports '../stores/memory/store.js'`,
  },
  {
    rule: 'only doors join stores to the rest',
    file: 'queue/bad.ts',
    text: `${lead}export type Memory = typeof import('../stores/memory/store.js')\n`,
    what: `imports '../stores/memory/store.js'`,
  },
  {
    rule: 'only doors join stores to the rest',
    file: 'queue/bad.ts',
    text: `${lead}export * from '../stores/memory/store.js'\n`,
    what: `imports '../stores/memory/store.js'`,
  },
]

describe('the walls between rooms', () => {
  test('an honest tree passes', () => {
    expect(walls(honest)).toEqual({ status: 0, output: `walls: all hold in ${Object.keys(honest).length} files\n` })
  })

  test('each kind of breach is named with its file, line and rule', () => {
    const tree: Record<string, string> = { ...honest }
    const expected = breaches.map(({ file, text, what, rule }, i) => {
      const path = file.replace('bad.ts', `bad-${i}.ts`)
      tree[path] = text
      return { path, line: text.startsWith(lead) ? 3 : 1, what, rule }
    })
    const { status, output } = walls(tree)
    expect(status).toBe(1)
    for (const { path, line, what, rule } of expected)
      expect(output).toContain(`${path}:${line} ${what}\n  rule: ${rule}`)
    expect(output).toContain(`walls: ${breaches.length} broken in`)
  })

  test('a cycle between files is named by its loop, once', () => {
    const { status, output } = walls({
      ...honest,
      'worker/a.ts': `${lead}import { b } from './b.js'\nexport const a = b\n`,
      'worker/b.ts': `import type { c } from './c.js'\nexport const b: typeof c = 1\n`,
      'worker/c.ts': `import { a } from './a.js'\nexport const c = a\n`,
    })
    expect(status).toBe(1)
    expect(output).toContain(
      `worker/a.ts:3 imports './b.js'\n  rule: no cycles between files: worker/a.ts → worker/b.ts`,
    )
    expect(output).toContain('worker/c.ts → worker/a.ts')
    expect(output).toContain('walls: 1 broken in')
  })
})
