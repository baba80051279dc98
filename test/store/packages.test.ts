// Optional packages: a missing one is distinguished from one that fails, and a bundler finds them all.
import { build } from 'esbuild'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test } from 'vitest'
import { importPackage } from '../../src/store/packages.js'

const root = fileURLToPath(new URL('../..', import.meta.url))
const wanted = { name: 'some-driver', neededBy: 'The store', install: 'some-driver@1' }

async function failureOf(error: unknown): Promise<unknown> {
  return importPackage(wanted, () => Promise.reject(error)).then(undefined, (thrown: unknown) => thrown)
}

describe('a package that cannot be imported', () => {
  test('is asked for where it is not installed', async () => {
    const missing = Object.assign(new Error("Cannot find package 'some-driver' imported from x.js"), {
      code: 'ERR_MODULE_NOT_FOUND',
    })
    expect(await failureOf(missing)).toMatchObject({
      code: 'MISSING_DRIVER',
      message: "The store needs the package 'some-driver'. Install it: npm install some-driver@1",
      details: { package: 'some-driver', installed: false },
      cause: missing,
    })
    const stub = new Error('Could not resolve "some-driver" imported by "millrace".')
    expect(await failureOf(stub)).toMatchObject({ details: { installed: false } })
  })

  test('is not to be installed again where it is there and fails', async () => {
    const inside = Object.assign(new Error("Cannot find module './build/binding.node'"), { code: 'MODULE_NOT_FOUND' })
    for (const error of [inside, new Error('wrong ELF class')]) {
      const failure = await failureOf(error)
      expect(failure).toMatchObject({ code: 'MISSING_DRIVER', details: { package: 'some-driver', installed: true } })
      expect(String(failure)).not.toContain('npm install')
      expect(String(failure)).toContain("external: ['some-driver']")
    }
  })
})

/** Bundles a program that imports the source by the names of the package's doors, and runs it. */
async function bundled(program: string, external: readonly string[]): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-bundle-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  writeFileSync(join(folder, 'program.ts'), program)
  const doors = ['', '/sqlite', '/postgres'].map((door) => [`millrace${door}`, `${root}/src${door || '/index'}.ts`])
  const { metafile } = await build({
    entryPoints: [join(folder, 'program.ts')],
    outfile: join(folder, 'program.mjs'),
    bundle: true,
    platform: 'node',
    format: 'esm',
    metafile: true,
    logLevel: 'silent',
    alias: Object.fromEntries(doors),
    external: [...external],
    banner: { js: "import { createRequire as cr } from 'node:module'; const require = cr(import.meta.url);" },
  })
  const imports = Object.values(metafile.outputs).flatMap((output) => output.imports.map(({ path }) => path))
  for (const name of external) expect(imports).toContain(name)
  const run = spawnSync(process.execPath, [join(folder, 'program.mjs')], { cwd: folder, encoding: 'utf8' })
  return run.stdout + run.stderr
}

describe('a program in one file by a bundler', () => {
  test('has the driver of SQLite that is left out of the bundle', { timeout: 120_000 }, async () => {
    const output = await bundled(
      `import { Queue } from 'millrace'
       import { sqlite } from 'millrace/sqlite'
       const store = sqlite(':memory:', { driver: '@photostructure/sqlite' })
       const queue = new Queue('mail', { store })
       const { id } = await queue.add('send', { to: 'ann' })
       console.log((await queue.get(id)).data)
       await queue.close()
       await store.close()`,
      ['@photostructure/sqlite', 'better-sqlite3'],
    )
    expect(output).toContain("{ to: 'ann' }")
  })

  test("has 'pg' inside", { timeout: 120_000 }, async () => {
    const output = await bundled(
      `import { postgres } from 'millrace/postgres'
       await postgres('postgres://127.0.0.1:1/none', { patience: '1s' }).open().catch((error) => console.log(error.code))`,
      [],
    )
    expect(output).not.toContain('MISSING_DRIVER')
  })
})
