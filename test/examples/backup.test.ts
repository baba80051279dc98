// The commands of docs/backup.md do what the page promises.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Queue, Worker, shutdown } from 'millrace'
import type { Store } from 'millrace'
import { sqlite } from 'millrace/sqlite'

const root = join(import.meta.dirname, '../..')
const page = readFileSync(join(root, 'docs/backup.md'), 'utf8')

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
const driver = major > 22 || (major === 22 && minor >= 16) ? 'node:sqlite' : '@photostructure/sqlite'

/** The code blocks of the page in one language. */
function blocks(language: string): string[] {
  return Array.from(page.matchAll(new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``, 'g')), ([, code]) => code!)
}

let folder: string

beforeEach(() => {
  const cache = join(root, 'node_modules/.cache') // from where the driver is found
  mkdirSync(cache, { recursive: true })
  folder = mkdtempSync(join(cache, 'millrace-backup-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Runs a script in the folder. */
function run(script: string): void {
  writeFileSync(join(folder, 'script.mjs'), script)
  const args = ['--no-warnings', 'script.mjs']
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' })
  expect(status, stderr).toBe(0)
}

function open(file: string): { store: Store; queue: Queue } {
  const store = sqlite(join(folder, file))
  return { store, queue: new Queue('mail', { store }) }
}

describe('docs/backup.md', () => {
  it('has two ways to back up from Node, and one way to mend', () => {
    expect([blocks('js').length, blocks('sql').length]).toEqual([2, 1])
  })

  for (const [at, script] of blocks('js').entries()) {
    it(`its backup from Node, the ${at === 0 ? 'first' : 'second'}, holds all that was committed, while the store is open`, async () => {
      const { store, queue } = open('jobs.db')
      await queue.addBulk(Array.from({ length: 50 }, () => ({ name: 'send', data: { to: 'ann' } })))
      run(script.replaceAll("'node:sqlite'", `'${driver}'`))
      await queue.add('send', { to: 'too late' })
      const copy = open('backup.db')
      expect((await copy.queue.counts()).waiting).toBe(50)
      await shutdown([queue, store, copy.queue, copy.store])
    })
  }

  it('its mending makes a file usable in which jobs and counters are missing', async () => {
    const before = open('recovered.db')
    await before.queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'send', data: { to: 'ann' } })))
    await before.queue.add('send', { to: 'first' }, { lifo: true })
    await shutdown([before.queue, before.store])
    const mend = JSON.stringify(blocks('sql')[0])
    run(`import { DatabaseSync } from '${driver}'
      const db = new DatabaseSync('recovered.db')
      db.exec("DELETE FROM millrace_job WHERE seq IN (3, 20); DELETE FROM millrace_body WHERE seq = 5")
      db.exec("DELETE FROM millrace_counter WHERE kind = 'store'; UPDATE millrace_counter SET n = n + 100")
      db.exec(${mend})
      db.close()`)

    const { store, queue } = open('recovered.db')
    expect((await queue.counts()).waiting).toBe(19)
    const worker = new Worker(queue, { send: async () => 'sent' }, { maxGlobalConcurrency: 2 })
    const added = await Promise.all([1, 2, 3].map((index) => queue.add('send', { index })))
    await Promise.all((await queue.list()).jobs.map((job) => job.result({ timeout: '20s' })))
    expect(await added[2]!.result()).toBe('sent')
    expect(await queue.counts()).toMatchObject({ waiting: 0, active: 0, completed: 22 })
    await shutdown([worker, queue, store])
  })
})
