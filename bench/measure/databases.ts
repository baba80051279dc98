// The databases of a bench: created on its server, copied from templates there, and dropped at the end.
import { Client } from 'pg'
import type { Places } from './scratch-files.js'

/**
 * How a template is copied. `logged`: the pages of the copy are in the write-ahead log, like those of jobs that were added
 * a moment ago. `files`: copies files, which is faster; for templates of a million jobs, which are old.
 */
export type Strategy = 'logged' | 'files'

/** The databases of one run. */
export interface Databases extends Places {
  readonly admin: Client
  /** The same databases, copied by another strategy. */
  copying(strategy: Strategy): Places
  /** Drops all of them, and disconnects. */
  remove(): Promise<void>
}

/** The prefix of the names of all benches' databases; the id of the process that created them follows. */
const NAMED = 'millrace_bench_'

/** Drops what a bench that was stopped has left on a server that was not its own. */
async function sweep(admin: Client): Promise<void> {
  const { rows } = await admin.query<{ name: string; pid: number }>(
    `select datname as name, split_part(datname, '_', 3)::int as pid from pg_database where datname ~ '^${NAMED}[0-9]+_[0-9]+$'`,
  )
  for (const { name, pid } of rows) if (!runs(pid)) await admin.query(`drop database ${name} with (force)`)
}

function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Connects to a server. */
export async function createDatabases(server: string): Promise<Databases> {
  const admin = new Client({ connectionString: server })
  await admin.connect()
  await sweep(admin)
  const prefix = `${NAMED}${process.pid}_`
  const made = new Set<string>()
  const templates = new Map<string, string>()
  let count = 0
  const urlOf = (name: string): string => Object.assign(new URL(server), { pathname: `/${name}` }).href
  const nameOf = (url: string): string => new URL(url).pathname.slice(1)
  const create = async (rest = ''): Promise<string> => {
    const name = `${prefix}${++count}`
    await admin.query(`create database ${name} ${rest}`)
    made.add(name)
    return urlOf(name)
  }
  /** Waits until the server has closed every connection to a database: pools resolve their end before that. */
  const left = async (name: string): Promise<void> => {
    const asked = 'select count(*)::int as n from pg_stat_activity where datname = $1'
    for (let looks = 0; looks < 200; looks++) {
      const { rows } = await admin.query<{ n: number }>(asked, [name])
      if (rows[0]!.n === 0) return
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }
  const drop = async (url: string): Promise<void> => {
    const name = nameOf(url)
    await left(name)
    await admin.query(`drop database if exists ${name} with (force)`) // also makes a checkpoint
    made.delete(name)
  }
  const copying = (strategy: Strategy): Places => ({
    fresh: () => create(),
    drop,
    async copy(key, fill) {
      let template = templates.get(key)
      if (template === undefined) {
        const url = await create()
        await fill(url)
        template = nameOf(url)
        templates.set(key, template)
      }
      return create(`template ${template} strategy ${strategy === 'logged' ? 'wal_log' : 'file_copy'}`)
    },
  })
  return {
    ...copying('logged'),
    admin,
    copying,
    async remove() {
      for (const name of made) await drop(urlOf(name))
      await admin.end()
    },
  }
}
