// A user's better-sqlite3 handle passes the whole suite and walks like the reference. It is no part of the project:
// scripts/test-system.mjs installs it aside and passes its path in MILLRACE_BETTER_SQLITE3.
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { conformanceCases, compareStores, runCase } from '../../../src/conformance.js'
import type { SqliteHandle } from '../../../src/sqlite.js'
import { memoryHarness } from '../../conformance/clock.js'
import { fileHarness } from '../../conformance/sqlite.js'

const folder = process.env['MILLRACE_BETTER_SQLITE3']
if (folder === undefined) throw new Error('MILLRACE_BETTER_SQLITE3 does not say where better-sqlite3 is installed.')
const Database = createRequire(join(folder, 'package.json'))('better-sqlite3') as new (path: string) => SqliteHandle

const make = () => fileHarness(undefined, (path) => new Database(path))

for (const area of new Set(conformanceCases.map((story) => story.area))) {
  describe(area, () => {
    for (const story of conformanceCases.filter((one) => one.area === area)) {
      test(story.title, async () => {
        expect(await runCase(make, story)).toBe('passed')
      })
    }
  })
}

test.each([1, 2, 3, 5, 8])('it walks like the reference from seed %i', async (seed) => {
  await compareStores(make, () => memoryHarness(), seed, 60, { every: 10 })
})

test('its own tables and those of Millrace live in one file, and the handle stays open', async () => {
  const place = mkdtempSync(join(tmpdir(), 'millrace-handle-'))
  try {
    const handle = new Database(join(place, 'app.db'))
    handle.exec('CREATE TABLE users (name TEXT)')
    const store = sqlite(handle)
    const queue = new Queue('mails', { store })
    const worker = new Worker(queue, { send: async () => 'sent' })
    const job = await queue.add('send', { to: 'ann' })
    expect(await job.result({ timeout: '30s' })).toBe('sent')
    await shutdown([worker, queue, store])
    expect(handle.prepare('SELECT count(*) AS n FROM millrace_jobs').get()).toEqual({ n: 1 })
    handle.exec("INSERT INTO users VALUES ('ann')")
    handle.close()
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
})
