// A file written by the version before is brought to this one's schema when it is opened, with all that it holds.
import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Queue } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { closing } from '../../setup.js'
import { freshFolder } from './folder.js'

const root = join(import.meta.dirname, '../../..')
const path = freshFolder()

const program = `
import { Queue, Worker } from 'millrace'
import { sqlite } from 'millrace/sqlite'
const store = sqlite(process.argv[2])
const queue = new Queue('work', { store })
for (let n = 0; n < 30; n++) await queue.add(n % 2 ? 'odd' : 'even', { n }, n % 3 ? {} : { delay: '1h' })
await queue.cancel({ name: 'odd', state: 'delayed' })
await queue.close()
await store.close()
`

/** Runs the program with the older package. */
function writeOlder(file: string): void {
  const modules = path('node_modules')
  mkdirSync(join(modules, 'millrace'), { recursive: true })
  const archive = join(root, 'test/fixtures/millrace-0.1.0.tgz')
  execFileSync('tar', ['-xzf', archive, '-C', join(modules, 'millrace'), '--strip-components=1'])
  for (const name of ['@photostructure', '@standard-schema'])
    symlinkSync(join(root, 'node_modules', name), join(modules, name))
  writeFileSync(path('package.json'), '{ "type": "module" }')
  writeFileSync(path('program.js'), program)
  execFileSync(process.execPath, [path('program.js'), file])
}

test('its jobs are listed and counted', async () => {
  writeOlder(path('old.db'))
  const store = closing(sqlite(path('old.db')))
  const queue = closing(new Queue('work', { store, logger: false }))
  const { jobs } = await queue.list({ name: 'odd', state: 'cancelled' })
  expect(jobs.map(({ data }) => (data as { n: number }).n)).toEqual([3, 9, 15, 21, 27])
  const { names } = await queue.counts({ by: 'name' })
  expect(names['even']).toMatchObject({ waiting: 10, delayed: 5 })
})
