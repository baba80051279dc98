// The contenders by name, for processes that are told which one to be.
import type { Subject } from './contender.js'

/** The contender of that name on a file, or on a server where the path is a URL; a peer must have been installed. */
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
