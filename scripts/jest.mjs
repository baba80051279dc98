// Runs the tests of `test/system/jest` by jest itself, from npm, on the built package.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fetchPackage } from './packages.mjs'

/** Returns the result as `runVitest` does; undefined if jest could not be installed. */
export function runJest() {
  const fetched = fetchPackage('millrace-jest', 'jest@30', '@jest/globals@30')
  if (!fetched) return undefined
  // Elsewhere, because jest finds no tests below a folder `node_modules`.
  const folder = mkdtempSync(join(tmpdir(), 'millrace-jest-'))
  try {
    cpSync(resolve('test/system/jest'), folder, { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{ "private": true, "type": "module" }\n')
    rmSync(join(fetched, 'node_modules/millrace'), { force: true })
    symlinkSync(resolve('.'), join(fetched, 'node_modules/millrace'), 'junction')
    symlinkSync(join(fetched, 'node_modules'), join(folder, 'node_modules'), 'junction')
    const jest = join(fetched, 'node_modules/jest/bin/jest.js')
    const args = ['--experimental-vm-modules', jest, '--rootDir', folder, '--testMatch', '**/*.jest.mjs', '--json']
    const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' })
    process.stdout.write(stderr)
    const { numPassedTests: passed, numFailedTests: failed, numPendingTests: skipped, success } = JSON.parse(stdout)
    return { passed, failed, skipped, failures: success ? [] : [stderr], ok: success && passed > 0 }
  } finally {
    rmSync(folder, { recursive: true })
  }
}
