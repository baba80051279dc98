// `npm test`: every check in turn, stopping at the first that fails. The last line is `N passed, N failed`.
import { spawnSync } from 'node:child_process'
import { runVitest } from './vitest.mjs'

const steps = [
  ['build', 'npm run --silent build'],
  ['typecheck', 'npm run --silent typecheck'],
  ['lint', 'npm run --silent lint'],
  ['format', 'npm run --silent format:check'],
  ['dead code', 'npm run --silent knip'],
  ['package', 'npm run --silent check:package'],
  ['error docs', 'npm run --silent docs:errors -- --check'],
]

for (const [name, command] of steps) {
  console.log(`\n=== ${name}: ${command.replace(' --silent', '')}`)
  const { status } = spawnSync(command, { shell: true, stdio: 'inherit' })
  if (status !== 0) {
    console.log(`\nStopped: ${name} failed, and the tests did not run.`)
    console.log('0 passed, 1 failed')
    process.exit(1)
  }
}

console.log('\n=== tests: vitest run')
const { ok, passed, failed, skipped, failures } = runVitest()
for (const each of failures) console.log(`\nFAILED in ${each}`)
if (skipped > 0) console.log(`${skipped} skipped`)
console.log(`${passed} passed, ${failed} failed`)
process.exit(ok ? 0 : 1)
