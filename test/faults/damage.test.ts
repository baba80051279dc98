// A file that is deleted, replaced or damaged under a running program: a clear error, and the program lives on.
import { closeSync, copyFileSync, existsSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { connect, loadDriver } from '../../src/stores/sqlite/file/driver.js'
import { heldOpen } from '../stores/sqlite/folder.js'
import { checkFile, linesOf, soundAccountOf, states } from './account.js'
import type { AdderInput, AdderMessage } from './programs/add-and-work.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'

const path = scene()
const db = (): string => path('jobs.db')

/** A program that has the file open. */
async function opened(): Promise<Process<AdderMessage>> {
  const program = start<AdderMessage>('add-and-work', { path: db(), ledger: path('ledger') } satisfies AdderInput)
  await program.received('ready')
  return program
}

/** Lets the program add a job; answers the codes of what went wrong, if anything did. */
async function add(program: Process<AdderMessage>, id: string): Promise<readonly string[]> {
  program.send({ kind: 'add', id })
  const { error } = await program.received('answer', (answer) => answer.id === id)
  return error?.codes ?? []
}

/** The ids that the store has acknowledged to the program. */
function acknowledged(): readonly string[] {
  return linesOf(path('ledger')).map(([, id]) => id!)
}

/** A file with jobs that wait. */
async function prepare(jobs: number): Promise<void> {
  const store = sqlite(db())
  const queue = new Queue('work', { store, logger: false })
  await queue.addBulk(Array.from({ length: jobs }, (_, n) => ({ name: 'chore', data: 'x'.repeat(n % 500) })))
  await queue.close()
  await store.close()
}

describe('a file that is gone', { timeout: 60_000 }, () => {
  const ways: readonly (readonly [way: string, lose: () => void, remains: boolean])[] = [
    ['was deleted', () => rmSync(db()), false],
    [
      'was deleted with all that lies beside it',
      () => {
        for (const end of ['', '-wal', '-shm']) rmSync(`${db()}${end}`)
      },
      false,
    ],
    ['was moved away', () => renameSync(db(), path('moved.db')), false],
    [
      'was replaced by a copy',
      () => {
        copyFileSync(db(), path('copy.db'))
        renameSync(path('copy.db'), db())
      },
      true,
    ],
  ]

  test.each(ways)(
    'where it %s, the store reports an error, and nothing is acknowledged any more',
    async (_, lose, remains) => {
      await prepare(10)
      const program = await opened()
      expect(await add(program, 'before')).toEqual([])
      lose()
      // The store looks for its file every few milliseconds; from then on, nothing is acknowledged that would be lost.
      let codes: readonly string[] = []
      for (let n = 0; codes.length === 0; n++) codes = await add(program, `after-${n}`)
      expect(codes[0]).toBe('DATABASE_GONE')
      const before = acknowledged()
      program.send({ kind: 'work' })
      expect((await program.received('error')).error.codes).toContain('DATABASE_GONE')
      for (let n = 0; n < 5; n++) expect((await add(program, `later-${n}`))[0]).toBe('DATABASE_GONE')
      expect(acknowledged()).toEqual(before)
      expect(existsSync(db())).toBe(remains) // never made anew, empty
      expect(program.alive).toBe(true)
    },
  )
})

describe('a damaged file', { timeout: 60_000 }, () => {
  /** Writes junk over the first page of a table or an index; what lies beside the file is brought into it before. */
  const damage = async (name: string): Promise<void> => {
    const other = connect(await loadDriver(), db())
    expect(other.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get()?.[0]).toBe(0)
    const page = Number(other.prepare('SELECT rootpage FROM sqlite_master WHERE name = ?').get(name)?.[0])
    expect(page).toBeGreaterThan(1)
    const file = openSync(db(), 'r+')
    writeSync(file, Buffer.alloc(4096, 0xa5), 0, 4096, (page - 1) * 4096)
    closeSync(file)
    // Another program commits, so that caches in memory are read again.
    other.exec('PRAGMA user_version = 7')
    other.close()
  }
  const clear = expect.stringMatching(/^DATABASE_(CORRUPT|INVALID)$/) as string
  const parts = ['millrace_job', 'millrace_job_ready', 'millrace_counter']

  test.each(parts)('is reported by adds and by the worker where %s was damaged while it is open', async (part) => {
    await prepare(2000)
    const program = await opened()
    expect(await add(program, 'before')).toEqual([])
    await damage(part)
    expect(await add(program, 'after')).toContainEqual(clear)
    program.send({ kind: 'work' })
    expect((await program.received('error')).error.codes).toContainEqual(clear)
    expect(await add(program, 'later')).toContainEqual(clear)
    expect(acknowledged()).toEqual(['before'])
    expect(program.alive).toBe(true)
  })

  test.each(parts)('is reported by adds and by the worker where %s was damaged before', async (part) => {
    await prepare(2000)
    await damage(part)
    const program = start<AdderMessage>('add-and-work', { path: db(), ledger: path('ledger') } satisfies AdderInput)
    expect(await add(program, 'after')).toContainEqual(clear)
    program.send({ kind: 'work' })
    expect((await program.received('error')).error.codes).toContainEqual(clear)
    expect(acknowledged()).toEqual([])
    expect(program.alive).toBe(true)
  })

  test('is worked on by a program that is started once a backup is in its place', async () => {
    await prepare(20)
    copyFileSync(db(), path('backup.db'))
    await damage('millrace_job')
    const program = await opened()
    program.send({ kind: 'work' })
    expect((await program.received('error')).error.codes).toContainEqual(clear)
    await program.kill()
    expect(await heldOpen(path())).toEqual([])
    for (const end of ['-wal', '-shm']) rmSync(`${db()}${end}`, { force: true })
    copyFileSync(path('backup.db'), db())
    const again = await opened()
    expect(await add(again, 'after')).toEqual([])
    again.send({ kind: 'work' })
    await again.received('completed', ({ id }) => id === 'after')
    expect(await again.finish()).toMatchObject({ code: 0 })
    const store = sqlite(db())
    expect(states((await soundAccountOf(store)).jobs)).toEqual({ completed: 21 })
    await store.close()
    expect(await checkFile(db())).toEqual(['ok'])
  })
})
