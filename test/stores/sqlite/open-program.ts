// A program that opens a database on command, and reports how that went. Run by the tests as a process of its own.
import { once } from 'node:events'
import { systemRuntime } from '../../../src/store/runtime.js'
import { loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import { openDatabase } from '../../../src/stores/sqlite/file/open.js'
import type { OpenOptions } from '../../../src/stores/sqlite/file/open.js'

/** What the program is to do. */
export interface Errand {
  readonly path: string
  readonly options?: OpenOptions
  /** Gives up the rights of root first, if it has them: they override all permissions of files. */
  readonly asNobody?: boolean
}

/** How it went. */
export type Report =
  | { readonly kind: 'opened' }
  | { readonly kind: 'refused'; readonly code: string; readonly message: string }

const NOBODY = 65_534

async function run({ path, options = {}, asNobody }: Errand): Promise<Report> {
  await loadDriver()
  if (asNobody && process.getuid?.() === 0) {
    process.setgid?.(NOBODY)
    process.setuid?.(NOBODY)
  }
  process.stdout.write('ready\n')
  await once(process.stdin, 'data')
  try {
    const db = await openDatabase(path, options, systemRuntime())
    db.close()
    return { kind: 'opened' }
  } catch (error) {
    const { code = '', message } = error as { code?: string; message: string }
    return { kind: 'refused', code, message }
  }
}

const report = await run(JSON.parse(process.argv[2] ?? '') as Errand)
process.stdout.write(`${JSON.stringify(report)}\n`)
process.stdin.destroy()
