// The files of a bench: a fresh folder on a real disk, removed at the end.
import { closeSync, copyFileSync, fsyncSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

/** File systems in memory, where a sync means nothing: tmpfs and ramfs. */
const IN_MEMORY = new Set([0x01021994, 0x858458f6])

/** Where databases are created. Each has a path, or a URL. */
export interface Places {
  /** Creates an empty database. */
  fresh(): string | Promise<string>
  /** Copies a database that `fill` creates on the first call. The copy is on the disk before it is used. */
  copy(key: string, fill: (path: string) => Promise<void>): Promise<string>
  /** Removes a database. */
  drop(path: string): void | Promise<void>
}

/** The files of one run. */
export interface Scratch extends Places {
  readonly folder: string
  /** Returns a path for a new database, in a folder of its own. */
  fresh(): string
  drop(path: string): void
  /** Removes everything. */
  remove(): void
}

/** Creates the folder, within `parent` or the system's temporary folder. */
export function createScratch(parent = tmpdir()): Scratch {
  const folder = mkdtempSync(join(parent, 'millrace-bench-'))
  const templates = new Map<string, string>()
  let made = 0
  const fresh = (): string => {
    const own = join(folder, String(++made))
    mkdirSync(own)
    return join(own, 'jobs.db')
  }
  return {
    folder,
    fresh,
    async copy(key, fill) {
      let template = templates.get(key)
      if (template === undefined) {
        template = fresh()
        await fill(template)
        templates.set(key, template)
      }
      const path = fresh()
      for (const name of readdirSync(dirname(template))) {
        if (name.endsWith('-shm')) continue
        const target = join(dirname(path), name)
        copyFileSync(join(dirname(template), name), target)
        const file = openSync(target, 'r+')
        fsyncSync(file) // or the first measured commit would pay for writing the copy
        closeSync(file)
      }
      return path
    },
    drop: (path) => rmSync(dirname(path), { recursive: true, force: true }),
    remove: () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }),
  }
}

/** Whether a folder is in memory and not on a disk; false where that is unknown. */
export async function inMemory(folder: string): Promise<boolean> {
  return process.platform === 'linux' && IN_MEMORY.has((await statfs(folder)).type)
}

/** The free bytes of a folder's file system. */
export async function free(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}
