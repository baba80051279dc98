// `npm run test:system`: what needs root (a full disk), then the suite and the built package on the other live lines of
// Node, fetched from npm, and the suite on a handle of better-sqlite3.
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { runVitest } from './vitest.mjs'

const lines = [22, 24]
/** The first with SQLite inside; its driver differs from the later ones in what it takes and answers. */
const floor = '22.13.0'
const cache = resolve('node_modules/.cache/millrace-nodes')
const platform = process.platform === 'win32' ? 'win' : process.platform
const binary = process.platform === 'win32' ? 'bin/node.exe' : 'bin/node'

function run(command, args) {
  const { status } = spawnSync(command, args, { stdio: 'inherit', shell: process.platform === 'win32' })
  return status === 0
}

/** Installs a package beside the project, never into its package.json; answers its folder. */
function fetchPackage(folder, wanted) {
  const prefix = join(cache, folder)
  mkdirSync(prefix, { recursive: true })
  writeFileSync(join(prefix, 'package.json'), '{ "private": true }\n')
  const flags = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts']
  return run('npm', ['install', ...flags, '--prefix', prefix, wanted]) ? prefix : undefined
}

/** Installs one line of Node, and proves that it starts. */
function install(line) {
  const name = `node-${platform}-${process.arch}`
  const prefix = fetchPackage(String(line), `${name}@${line}`)
  if (!prefix) return undefined
  const node = join(prefix, 'node_modules', name, binary)
  const { status, stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' })
  return status === 0 && stdout.trim().startsWith(`v${line}`) ? node : undefined
}

console.log('\n=== build')
let ok = run('npm', ['run', '--silent', 'build'])
const total = { passed: 0, failed: ok ? 0 : 1 }

/** Adds what a run came to. */
function add(what, result) {
  console.log(`${what}: ${result.passed} passed, ${result.failed} failed, ${result.skipped} skipped`)
  total.passed += result.passed
  total.failed += result.failed
  ok &&= result.ok
}

console.log('\n=== full disk: test/system, which mounts a small tmpfs and so needs root')
const built = ok
add('full disk', runVitest(process.execPath, ['--config', 'vitest.system.config.ts']))

if (built) {
  console.log(`\n=== Node ${floor}: SQLite`)
  const node = install(floor)
  if (node) {
    const parts = ['test/sqlite', 'test/conformance/sqlite.test.ts', '--typecheck.enabled=false']
    add(`Node ${floor}`, runVitest(node, parts))
  } else {
    console.log(`Node ${floor} could not be installed`)
    total.failed += 1
    ok = false
  }
}

for (const line of built ? lines : []) {
  console.log(`\n=== Node ${line}: install`)
  const node = install(line)
  if (!node) {
    console.log(`Node ${line} could not be installed`)
    total.failed += 1
    ok = false
    continue
  }

  console.log(`\n=== Node ${line}: built package`)
  if (!run(node, ['scripts/smoke.mjs'])) {
    total.failed += 1
    ok = false
  }

  console.log(`\n=== Node ${line}: tests`)
  add(`Node ${line}`, runVitest(node))
  if (line !== lines.at(-1)) continue

  // It crashes on Node 20, and no other line is needed to prove that a user's handle works.
  console.log(`\n=== Node ${line}: a handle of better-sqlite3`)
  const folder = fetchPackage('better-sqlite3', 'better-sqlite3@13')
  if (folder) {
    process.env.MILLRACE_BETTER_SQLITE3 = folder
    add('better-sqlite3', runVitest(node, ['--config', 'vitest.system.config.ts']))
  } else {
    console.log('better-sqlite3 could not be installed')
    total.failed += 1
    ok = false
  }
}

console.log(`${total.passed} passed, ${total.failed} failed`)
process.exit(ok ? 0 : 1)
