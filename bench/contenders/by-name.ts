// Looks contenders up by name, for processes that receive the name as an argument.
import type { Subject } from './contender.js'

/** Returns the contender of that name, on a file or on the server of a URL. A peer must have been installed. */
export async function subjectNamed(name: string, path: string): Promise<Subject> {
  const file = !path.includes('://')
  switch (name) {
    case 'millrace':
      return file ? (await import('./millrace-sqlite.js')).millrace : (await import('./millrace-postgres.js')).millrace
    case 'raw':
      return file ? (await import('./raw-sqlite.js')).raw : (await import('./raw-postgres.js')).raw
    case 'plainjob':
      return (await import('./plainjob.js')).plainjob()
    case 'pg-boss':
      return (await import('./pg-boss.js')).pgBoss()
    case 'graphile-worker':
      return (await import('./graphile-worker.js')).graphileWorker()
    case 'BullMQ':
      return (await import('./bullmq.js')).bullmq()
    default:
      throw new Error(`There is no contender called ${name}.`)
  }
}
