// A second copy of SQLite for tests: an addon is loaded once for each file that it is in.
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll } from 'vitest'
import type { DatabaseClass } from '../../../src/stores/sqlite/file/driver.js'

/** Installs `@photostructure/sqlite` once more for the tests of a file. Returns its folder, and the class loaded from there. */
export function anotherCopy(): { readonly folder: () => string; readonly Second: () => DatabaseClass } {
  let folder = ''
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-copy-'))
    const modules = dirname(dirname(dirname(fileURLToPath(import.meta.resolve('@photostructure/sqlite/package.json')))))
    for (const name of ['@photostructure/sqlite', 'node-gyp-build']) {
      const to = join(folder, 'node_modules', name)
      mkdirSync(dirname(to), { recursive: true })
      cpSync(join(modules, name), to, { recursive: true, filter: (path) => !path.endsWith(join('sqlite', 'src')) })
    }
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const Second = (): DatabaseClass => {
    const load = createRequire(join(folder, 'index.js'))
    return (load('@photostructure/sqlite') as { DatabaseSync: DatabaseClass }).DatabaseSync
  }
  return { folder: () => folder, Second }
}
