// Two copies of SQLite in different threads of one process: their locks do not exclude each other either.
import { once } from 'node:events'
import { mkdirSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { sqlite } from 'millrace/sqlite'
import { expect, onTestFinished, test } from 'vitest'
import { fileNumber } from '../../../../src/stores/sqlite/file/library-copies.js'
import { closing } from '../../../setup.js'
import { anotherCopy } from '../another-copy.js'
import { freshFolder, refusal } from '../folder.js'
import type { ThreadOptions, ThreadReport } from '../thread-program.js'

const at = freshFolder()
const { folder, Second } = anotherCopy()
/** Node loads no TypeScript in a thread by itself. */
const program = `import('tsx/esm/api').then(({ tsImport }) => tsImport('../thread-program.ts', '${import.meta.url}'))`

/** Opens the store in a thread. Returns the code of the error, if that was refused, and how to close the store. */
async function thread(copy?: string): Promise<ThreadReport & { readonly close: () => Promise<void> }> {
  const signal = new Int32Array(new SharedArrayBuffer(4))
  const workerData: ThreadOptions = { path: at('app.db'), folder: copy, close: signal }
  const worker = new Worker(program, { eval: true, workerData })
  const ended = once(worker, 'exit')
  const close = async (): Promise<void> => {
    Atomics.store(signal, 0, 1)
    Atomics.notify(signal, 0)
    await ended
  }
  onTestFinished(close)
  const [report] = (await once(worker, 'message')) as [ThreadReport]
  return { ...report, close }
}

const markFolder = join(tmpdir(), `millrace-${process.getuid!()}`)

/** The marks of open stores on the file. */
function marks(): string[] {
  const prefix = `${process.pid}-${fileNumber(at('app.db'))!.replace(':', '-')}-`
  return readdirSync(markFolder).filter((name) => name.startsWith(prefix))
}

test('a store by another copy is refused while another thread has the file open', { timeout: 60_000 }, async () => {
  await closing(sqlite(at('app.db'))).open()
  expect((await thread(folder())).code).toBe('SECOND_SQLITE')
})

test('a blocked thread refuses another copy until it has closed the file', { timeout: 60_000 }, async () => {
  const { code, close } = await thread(folder())
  expect(code).toBeUndefined()
  const store = closing(sqlite(at('app.db')))
  expect((await refusal(store.open())).code).toBe('SECOND_SQLITE')
  await close()
  await store.open()
})

test('stores by one copy open a new file in many threads at once', { timeout: 60_000 }, async () => {
  const threads = await Promise.all([1, 2, 3, 4].map(() => thread()))
  expect(threads.map(({ code }) => code)).toEqual([undefined, undefined, undefined, undefined])
  const store = sqlite(at('app.db'))
  await store.open()
  expect(marks()).toHaveLength(5)
  await Promise.all(threads.map(({ close }) => close()))
  await store.close()
  expect(marks()).toEqual([])
})

test('a thread that ended without closing its store does not make others refuse', { timeout: 60_000 }, async () => {
  const worker = new Worker(program, {
    eval: true,
    workerData: { path: at('app.db'), folder: folder(), close: new Int32Array(new SharedArrayBuffer(4)) },
  })
  const [report] = (await once(worker, 'message')) as [ThreadReport]
  expect(report.code).toBeUndefined()
  await worker.terminate()
  await closing(sqlite(at('app.db'))).open()
  expect(marks()).toHaveLength(1)
})

test('a store opens and closes although marks cannot be removed', async () => {
  const odd = join(markFolder, '999999999-1-1-odd') // as of a process that has ended
  mkdirSync(odd, { recursive: true })
  onTestFinished(() => rmSync(odd, { recursive: true, force: true }))
  const store = sqlite(at('app.db'))
  await store.open()
  const [mark] = marks()
  const file = join(markFolder, mark!)
  rmSync(file)
  mkdirSync(file)
  onTestFinished(() => rmSync(file, { recursive: true, force: true }))
  await store.close()
})

test('a store opens a file that only a program without Millrace has open by another copy', async () => {
  const other = new (Second())(at('app.db'))
  other.exec('PRAGMA journal_mode = WAL; CREATE TABLE own (n INTEGER)')
  await closing(sqlite(at('app.db'))).open()
  other.close()
})
