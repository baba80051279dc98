// stores/sqlite/thread/main.ts: the program of the thread: a SQLite store that is called over its channel.
import { parentPort, workerData } from 'node:worker_threads'
import { sqlite } from '../store.js'
import type { ThreadData } from './messages.js'
import { serveStore } from './serve.js'

const { path, options } = workerData as ThreadData
serveStore(sqlite(path, options), parentPort!)
