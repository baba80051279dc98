// stores/sqlite/groups.ts: what is known of the groups in a file, as long as nobody else writes to it.
import type { JobRecord, JobState } from '../../job/job.js'
import type { Statements } from './statements.js'

/** Groups that are remembered from one commit to the next. */
const MANY = 10_000

/** What is known of one group in one queue; what is not can be read. */
interface Known {
  /** The highest turn of those that wait, by priority; undefined: none waits. */
  readonly last: Map<number, number | undefined>
  backlog: number | undefined
}

const backlog: ReadonlySet<JobState | undefined> = new Set<JobState>(['waiting', 'delayed', 'waiting-children'])

/** Turns and backlogs, read once and kept up with what is written. */
export class Groups {
  readonly #sql: Statements
  readonly #known = new Map<string, Known>()
  /** The turn that a queue has come to, by queue and priority. */
  readonly #come = new Map<string, number>()

  constructor(sql: Statements) {
    this.#sql = sql
  }

  /** The highest turn that was claimed from a queue, within a priority. */
  come(queue: number, priority: number): number {
    const key = `${queue} ${priority}`
    let come = this.#come.get(key)
    if (come === undefined) {
      come = (this.#sql.turn.get(queue, String(priority))?.[0] as number | undefined) ?? 0
      this.#come.set(key, come)
    }
    return come
  }

  /** A turn was claimed; whoever says so writes it. */
  came(queue: number, priority: number, turn: number): void {
    this.#come.set(`${queue} ${priority}`, turn)
  }

  /** The turn of a priority was forgotten in the file. */
  forgetCome(queue: number, priority: string): void {
    this.#come.delete(`${queue} ${priority}`)
  }

  /** The highest turn of those of a group that wait, within a priority. */
  last(queue: number, group: string, priority: number): number | undefined {
    const { last } = this.#of(queue, group)
    if (!last.has(priority)) this.learn(queue, [group], priority)
    return last.get(priority)
  }

  /** Reads the highest turns of some groups at once, as far as they are not known. */
  learn(queue: number, groups: Iterable<string>, priority: number): void {
    const unknown = [...new Set(groups)].filter((group) => !this.#of(queue, group).last.has(priority))
    if (unknown.length === 0) return
    const found = this.#sql.lastTurns.all(queue, priority, JSON.stringify(unknown)) as [string, number | null][]
    for (const [group, last] of found) this.#of(queue, group).last.set(priority, last ?? undefined)
  }

  /** How many jobs of a group are neither finished nor claimed. */
  backlog(queue: number, group: string): number {
    const known = this.#of(queue, group)
    return (known.backlog ??= this.#sql.groupBacklog.get(queue, group)![0] as number)
  }

  /** A job of a group is new, or was moved. */
  placed(queue: number, job: JobRecord, from: JobState | undefined): void {
    const known = this.#known.get(keyOf(queue, job.group!))
    if (known === undefined) return
    const { last } = known
    const { state, priority, ord } = job
    if (from === 'waiting') {
      if (state !== 'active') last.clear() // it may have been in another place
      else if (last.get(priority) === ord) last.delete(priority)
    } else if (state === 'waiting' && last.has(priority)) last.set(priority, Math.max(ord, last.get(priority) ?? ord))
    if (known.backlog !== undefined) known.backlog += Number(backlog.has(state)) - Number(backlog.has(from))
  }

  /** Forgets a group: something else has happened to it. */
  forget(queue: number, group: string): void {
    this.#known.delete(keyOf(queue, group))
  }

  /** Forgets all of them, if there are many; not while what is known of one has not been written. */
  trim(): void {
    if (this.#known.size > MANY) this.#known.clear()
  }

  #of(queue: number, group: string): Known {
    const key = keyOf(queue, group)
    let known = this.#known.get(key)
    if (known === undefined) this.#known.set(key, (known = { last: new Map(), backlog: undefined }))
    return known
  }
}

function keyOf(queue: number, group: string): string {
  return `${queue} ${group}`
}
