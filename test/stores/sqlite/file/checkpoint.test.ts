// The log beside the file: it is moved into the file as it grows, and emptied when it has become far too long.
import { statSync } from 'node:fs'
import { expect, test } from 'vitest'
import { sqlite } from 'millrace/sqlite'
import type { Queue } from 'millrace'
import { closing, newQueue } from '../../../setup.js'
import { drivers, freshFolder } from '../folder.js'

const at = freshFolder()
const { Driver: Handle } = drivers[0]!

const MiB = 1024 * 1024
const logged = (): number => statSync(at('jobs.db-wal')).size

/** Adds jobs of a megabyte each, in as many commits. */
async function fill(queue: Queue, commits: number, each: () => void = () => {}): Promise<void> {
  for (let n = 0; n < commits; n++) {
    await queue.add('chore', 'x'.repeat(MiB - 2))
    each()
  }
}

test('a few large commits have it moved, as many small ones do', async () => {
  const queue = newQueue({ store: closing(sqlite(at('jobs.db'))) })
  await fill(queue, 50, () => expect(logged()).toBeLessThan(18 * MiB))
  expect(statSync(at('jobs.db')).size).toBeGreaterThan(18 * MiB)
})

test.each([
  ['commit', (queue: Queue) => queue.add('chore', 'small')],
  ['transaction', (queue: Queue) => queue.transaction(() => queue.add('chore', 'small'))],
])('that has grown while somebody read is emptied with the next %s', async (_, write) => {
  const queue = newQueue({ store: closing(sqlite(at('jobs.db'))) })
  await queue.add('chore', 'first')
  const reader = new Handle(at('jobs.db'))
  reader.exec('BEGIN; SELECT * FROM millrace_job')
  await fill(queue, 20)
  expect(logged()).toBeGreaterThan(18 * MiB)
  reader.exec('COMMIT')
  await write(queue)
  expect(logged()).toBeLessThan(MiB)
  reader.close()
})
