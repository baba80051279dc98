// The package of the version before this one, as `npm run fixture` packed it, to run beside the present code.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll } from 'vitest'
import type * as millrace from '../src/index.js'
import type * as postgres from '../src/postgres.js'
import type * as sqlite from '../src/sqlite.js'

/** The doors of the older package, as far as they are used here; they are the same as today. */
type Older = Pick<typeof millrace, 'Queue' | 'Worker'> &
  Pick<typeof sqlite, 'sqlite'> &
  Pick<typeof postgres, 'postgres'>

const root = join(import.meta.dirname, '..')

/** Unpacks the package for the tests of a file, and imports it. */
export async function importOlder(): Promise<Older> {
  const archive = readdirSync(join(root, 'test/fixtures')).findLast((name) => /^millrace-.*\.tgz$/.test(name))!
  const cache = join(root, 'node_modules/.cache') // where the packages that it imports are found
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(join(cache, 'millrace-older-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  execFileSync('tar', ['-xzf', join(root, 'test/fixtures', archive), '-C', folder, '--strip-components=1'])
  const doors = await Promise.all(
    ['index', 'sqlite', 'postgres'].map(
      (door) => import(/* @vite-ignore */ pathToFileURL(join(folder, `dist/${door}.js`)).href) as Promise<object>,
    ),
  )
  return Object.assign({}, ...doors) as Older
}
