// stores/sqlite/thread/start.ts: starts the thread from the file beside this one.
import { Worker } from 'node:worker_threads'
import type { ThreadData } from './messages.js'

/** A thread as the store uses it; a `Worker`. */
export type Thread = Pick<Worker, 'on' | 'postMessage' | 'ref' | 'unref' | 'terminate'>

/** Node loads no TypeScript in a thread by itself. */
const loader = `import('tsx/esm/api').then(({ tsImport }) => tsImport('./main.ts', '${import.meta.url}'))`

/** Starts a thread with a store. The name of the file is spelled out, so that bundlers can find it. */
export function startThread(workerData: ThreadData): Thread {
  const options = { workerData, name: 'millrace-sqlite' }
  // Run from its sources, as the tests of this project do.
  if (import.meta.url.endsWith('.ts')) return new Worker(loader, { ...options, eval: true })
  return new Worker(new URL('./main.js', import.meta.url), options)
}
