// stores/memory/find-indexes.ts: the indexes of jobs with tags, of jobs whose last attempt failed, and of those that failed
// or were cancelled, by the time they ended. All other jobs are in none of them.
import { isFailing } from '../../job/errors/fingerprint.js'
import type { JobRecord } from '../../job/job.js'
import { tagsOf } from '../../job/values/tags.js'
import { endStates } from '../../store/read-pages.js'
import { BTree } from './btree.js'
import { bySeq } from './row.js'
import type { Row } from './row.js'

type Rows = BTree<Row>

/** Rows by queue and a text: a tag, a fingerprint or a code. */
class Listed {
  readonly #byQueue = new Map<string, Map<string, Rows>>()

  rows(queue: string, text: string): Rows | undefined {
    return this.#byQueue.get(queue)?.get(text)
  }

  /** The texts of a queue after a text, in their order. */
  texts(queue: string, after: string): readonly string[] {
    return [...(this.#byQueue.get(queue)?.keys() ?? [])].filter((text) => text > after).toSorted(byUnits)
  }

  insert(row: Row, text: string): void {
    let texts = this.#byQueue.get(row.job.queue)
    if (texts === undefined) this.#byQueue.set(row.job.queue, (texts = new Map()))
    let rows = texts.get(text)
    if (rows === undefined) texts.set(text, (rows = new BTree(bySeq)))
    rows.insert(row)
  }

  delete(row: Row, text: string): void {
    const texts = this.#byQueue.get(row.job.queue)
    const rows = texts?.get(text)
    if (texts === undefined || rows === undefined || !rows.delete(row) || rows.size > 0) return
    texts.delete(text)
    if (texts.size === 0) this.#byQueue.delete(row.job.queue)
  }
}

const byUnits = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

function byEnd(a: Row, b: Row): number {
  return a.job.finishedAt! - b.job.finishedAt! || a.seq - b.seq
}

/** The indexes that only filtered queries read. */
export class FindIndexes {
  readonly tags = new Listed()
  readonly fingerprints = new Listed()
  readonly codes = new Listed()
  /** Failed and cancelled jobs by queue and the time they ended. */
  readonly ended = new Map<string, Rows>()

  /** Adds a new row. */
  add(row: Row): void {
    for (const tag of tagsOf(row.job)) this.tags.insert(row, tag)
    this.enter(row)
  }

  /** Takes a row out that is removed. */
  drop(row: Row): void {
    for (const tag of tagsOf(row.job)) this.tags.delete(row, tag)
    this.leave(row)
  }

  /** Adds a row to the indexes that its state and its error belong in. */
  enter(row: Row): void {
    const { job } = row
    if (isFailing(job)) {
      const { fingerprint, code } = job.error!
      if (fingerprint !== undefined) this.fingerprints.insert(row, fingerprint)
      if (code !== undefined) this.codes.insert(row, code)
    }
    if (!isEnded(job)) return
    let rows = this.ended.get(job.queue)
    if (rows === undefined) this.ended.set(job.queue, (rows = new BTree(byEnd)))
    rows.insert(row)
  }

  /** Takes a row out of those indexes, before its state or its error changes. */
  leave(row: Row): void {
    const { job } = row
    if (isFailing(job)) {
      const { fingerprint, code } = job.error!
      if (fingerprint !== undefined) this.fingerprints.delete(row, fingerprint)
      if (code !== undefined) this.codes.delete(row, code)
    }
    if (isEnded(job)) this.ended.get(job.queue)?.delete(row)
  }
}

/** Whether a row may be in one of the indexes that change with it; most are in none. */
export function isListed(job: JobRecord): boolean {
  return job.error !== undefined || isEnded(job)
}

function isEnded({ kind, state }: JobRecord): boolean {
  return kind === 'job' && endStates.includes(state)
}
