// What a server runs on: its programs, its data and its superuser's password, in one folder. A new one takes a second;
// a copy of one that has never been started, a tenth of that.
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, chown, cp, mkdir, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { install, programsIn, serverUser } from './installation.js'
import type { Programs } from './installation.js'

/** A server's programs, data and password. */
export interface Cluster {
  readonly programs: Programs
  readonly data: string
  readonly password: string
}

const parts = (folder: string): { data: string; secret: string } => ({
  data: join(folder, 'data'),
  secret: join(folder, 'password'),
})

/** The cluster of a folder, made there if there is none. */
export async function clusterIn(folder: string, major: number): Promise<Cluster> {
  const { data, secret } = parts(folder)
  await opened(folder)
  const programs = await install(major, folder)
  if (!existsSync(secret)) await initialise(programs, folder, major)
  return { programs, data, password: await readFile(secret, 'utf8') }
}

/** A copy of a cluster that was never started, in another folder; the programs are not copied. */
export async function copyOf(from: string, folder: string): Promise<Cluster> {
  const user = serverUser()
  const { data, secret } = parts(folder)
  await opened(folder)
  await cp(parts(from).data, data, { recursive: true })
  if (user) {
    const within = await readdir(data, { recursive: true })
    for (const each of ['', ...within]) await chown(join(data, each), user.uid, user.gid)
  }
  await cp(parts(from).secret, secret)
  return { programs: programsIn(from), data, password: await readFile(secret, 'utf8') }
}

/** The server's user goes through the folder. */
async function opened(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  await chmod(folder, 0o755)
}

async function initialise(programs: Programs, folder: string, major: number): Promise<void> {
  const user = serverUser()
  const { data, secret } = parts(folder)
  await mkdir(data, { mode: 0o700 })
  await writeFile(secret, randomBytes(16).toString('hex'), { mode: 0o600 })
  if (user) for (const each of [data, secret]) await chown(each, user.uid, user.gid)
  // Databases out there compare text by a language, not by bytes; before 15 only the system's locales could do that.
  const locale = major >= 15 ? ['--locale-provider=icu', '--icu-locale=en', '--locale=C'] : ['--locale=C']
  const options = ['--username=postgres', `--pwfile=${secret}`, '--auth=scram-sha-256', '--encoding=UTF8', '--no-sync']
  await promisify(execFile)(programs.initdb, [`--pgdata=${data}`, ...options, ...locale], { ...user, cwd: data })
}
