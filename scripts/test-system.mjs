// `npm run test:system`: the suite and the built package on the other live lines of Node, fetched from npm.
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { runVitest } from './vitest.mjs'

const lines = [22, 24]
const cache = resolve('node_modules/.cache/millrace-nodes')
const platform = process.platform === 'win32' ? 'win' : process.platform
const binary = process.platform === 'win32' ? 'bin/node.exe' : 'bin/node'

function run(command, args) {
  const { status } = spawnSync(command, args, { stdio: 'inherit', shell: process.platform === 'win32' })
  return status === 0
}

/** Installs one line of Node beside the project, never into its package.json, and proves that it starts. */
function install(line) {
  const prefix = join(cache, String(line))
  const name = `node-${platform}-${process.arch}`
  mkdirSync(prefix, { recursive: true })
  writeFileSync(join(prefix, 'package.json'), '{ "private": true }\n')
  const flags = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts']
  if (!run('npm', ['install', ...flags, '--prefix', prefix, `${name}@${line}`])) return undefined

  const node = join(prefix, 'node_modules', name, binary)
  const { status, stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' })
  return status === 0 && stdout.startsWith(`v${line}.`) ? node : undefined
}

console.log('\n=== build')
let ok = run('npm', ['run', '--silent', 'build'])
const total = { passed: 0, failed: ok ? 0 : 1 }

for (const line of ok ? lines : []) {
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
  const result = runVitest(node)
  console.log(`Node ${line}: ${result.passed} passed, ${result.failed} failed, ${result.skipped} skipped`)
  total.passed += result.passed
  total.failed += result.failed
  ok &&= result.ok
}

console.log(`${total.passed} passed, ${total.failed} failed`)
process.exit(ok ? 0 : 1)
