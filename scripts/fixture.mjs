// Packs this version of Millrace for the tests of later versions: `npm run fixture` writes test/fixtures/millrace-<version>.tgz.
//
// Run it for each release, and remove the package of the release before last: the tests run the one that is there beside
// the present code. The package has the doors that those tests import, without types.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'

const root = join(import.meta.dirname, '..')
const { name, version, dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const doors = ['index', 'sqlite', 'postgres']

const folder = mkdtempSync(join(tmpdir(), 'millrace-fixture-'))
try {
  const target = join(folder, 'package')
  await build({
    absWorkingDir: root,
    entryPoints: doors.map((door) => `src/${door}.ts`),
    outdir: join(target, 'dist'),
    bundle: true,
    splitting: true,
    minify: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
  })
  const exports = Object.fromEntries(doors.map((door) => [door === 'index' ? '.' : `./${door}`, `./dist/${door}.js`]))
  mkdirSync(target, { recursive: true })
  writeFileSync(
    join(target, 'package.json'),
    `${JSON.stringify({ name, version, type: 'module', exports, dependencies }, undefined, 2)}\n`,
  )
  const archive = join('test/fixtures', `${name}-${version}.tgz`)
  execFileSync('tar', ['-czf', join(root, archive), '-C', folder, 'package'])
  console.log(archive)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
