// The contenders by name, for processes that are told which one to be.
import type { Subject } from './subject.js'

/** The contender of that name on a file, or on a server where the path is a URL; a peer must have been installed. */
export async function subjectNamed(name: string, path: string): Promise<Subject> {
  const file = !path.includes('://')
  switch (name) {
    case 'millrace':
      return file ? (await import('./sqlite.js')).millrace : (await import('./postgres/store.js')).millrace
    case 'raw':
      return file ? (await import('./raw.js')).raw : (await import('./postgres/raw.js')).raw
    case 'plainjob':
      return (await import('./plainjob.js')).plainjob()
    case 'pg-boss':
      return (await import('./postgres/pg-boss.js')).pgBoss()
    case 'graphile-worker':
      return (await import('./postgres/graphile-worker.js')).graphileWorker()
    case 'BullMQ':
      return (await import('./postgres/bullmq.js')).bullmq()
    default:
      throw new Error(`There is no contender called ${name}.`)
  }
}
