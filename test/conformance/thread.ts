// SQLite stores in a thread for the suite; their clock moves only when told.
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MessageChannel, Worker } from 'node:worker_threads'
import type { Harness, MakeHarness } from '../../src/conformance/harness.js'
import type { Store } from '../../src/store/store.js'
import type { Thread } from '../../src/stores/sqlite/thread/start.js'
import { ThreadStore } from '../../src/stores/sqlite/thread/store.js'
import { RING, RING_BYTES } from './clock.js'
import type { Errand } from './thread-program.js'

const program = `import('tsx/esm/api').then(({ tsImport }) => tsImport('./thread-program.ts', '${import.meta.url}'))`

/** One thread for all stores of a test file. */
export function threadHarnesses(): { readonly make: MakeHarness; readonly end: () => Promise<void> } {
  const worker = new Worker(program, { eval: true })
  const serve = (path: string): Thread => {
    const { port1, port2 } = new MessageChannel()
    worker.postMessage({ path, port: port2 } satisfies Errand, [port2])
    const terminate = async (): Promise<number> => {
      port1.close()
      return 0
    }
    return Object.assign(port1, { terminate }) as unknown as Thread
  }
  const advance = async (path: string, ms: number): Promise<void> => {
    const { port1, port2 } = new MessageChannel()
    worker.postMessage({ path, advance: ms, done: port2 } satisfies Errand, [port2])
    await once(port1, 'message')
  }
  const make = async (): Promise<Harness> => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-thread-'))
    const path = join(folder, 'jobs.db')
    const handles: Store[] = []
    const open = async (): Promise<Store> => {
      const store = new ThreadStore({ share: 'machine', portion: 250, start: () => serve(path) })
      handles.push(store)
      await store.open()
      return store
    }
    return {
      store: await open(),
      peer: open,
      advance: (ms) => advance(path, ms),
      ring: RING,
      ringBytes: RING_BYTES,
      async dispose() {
        await Promise.all(handles.map((store) => store.close()))
        rmSync(folder, { recursive: true, force: true })
      },
    }
  }
  return { make, end: async () => void (await worker.terminate()) }
}
