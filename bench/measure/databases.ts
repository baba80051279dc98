// The databases of a bench: made on its server, copied from templates there, and gone at the end.
import { Client } from 'pg'
import type { Places } from './scratch-files.js'

/**
 * How a template is copied. `logged`: its pages are in the log since the last checkpoint, as those of jobs that were
 * added a moment ago. `files`: for templates of a million jobs, which are old, and which this copies faster.
 */
export type Strategy = 'logged' | 'files'

/** Databases of one run. */
export interface Databases extends Places {
  readonly admin: Client
  /** The same, whose copies are made in a certain way. */
  copying(strategy: Strategy): Places
  /** Removes all of them, and leaves. */
  remove(): Promise<void>
}

/** What the names of all benches' databases begin with; the process that made them comes next. */
const NAMED = 'millrace_bench_'

/** Removes what a bench that was stopped has left on a server that was not its own. */
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

/** Gets ready to make databases on a server. */
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
  /** Pools say that they have ended when they have said so to the server: what it has not heard yet is waited for. */
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
    await admin.query(`drop database if exists ${name} with (force)`) // which also makes a checkpoint
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
