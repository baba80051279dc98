// stores/sqlite/groups.ts: caches turns and backlogs of groups, as long as no other connection writes to the file.
import { isBacklog } from '../../job/limits.js'
import { isClaimable, isLeased } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import type { Statements } from './statements.js'

/** Maximum number of groups cached from one commit to the next. */
const MAX_GROUPS = 10_000

/** What is known of one group in one queue; the rest can be read. */
interface Known {
  /** The highest turn of its waiting jobs, by priority; undefined: none waits. */
  readonly last: Map<number, number | undefined>
  backlog: number | undefined
}

/** Turns and backlogs, read once and updated with every write. */
export class Groups {
  readonly #sql: Statements
  readonly #known = new Map<string, Known>()
  /** The current turn of a queue, by queue and priority. */
  readonly #currentTurns = new Map<string, number>()

  constructor(sql: Statements) {
    this.#sql = sql
  }

  /** The highest turn that was claimed from a queue, within a priority. */
  currentTurn(queue: number, priority: number): number {
    const key = `${queue} ${priority}`
    let currentTurn = this.#currentTurns.get(key)
    if (currentTurn === undefined) {
      currentTurn = (this.#sql.turn.get(queue, String(priority))?.[0] as number | undefined) ?? 0
      this.#currentTurns.set(key, currentTurn)
    }
    return currentTurn
  }

  /** Sets the current turn. The caller writes it to the file. */
  setCurrentTurn(queue: number, priority: number, turn: number): void {
    this.#currentTurns.set(`${queue} ${priority}`, turn)
  }

  /** Call after the turn of a priority was removed from the file. */
  forgetTurn(queue: number, priority: string): void {
    this.#currentTurns.delete(`${queue} ${priority}`)
  }

  /** The highest turn of the waiting jobs of a group, within a priority. */
  last(queue: number, group: string, priority: number): number | undefined {
    const { last } = this.#of(queue, group)
    if (!last.has(priority)) this.load(queue, [group], priority)
    return last.get(priority)
  }

  /** Reads the highest turns of some groups at once, unless they are known. */
  load(queue: number, groups: Iterable<string>, priority: number): void {
    const unknown = [...new Set(groups)].filter((group) => !this.#of(queue, group).last.has(priority))
    if (unknown.length === 0) return
    const found = this.#sql.lastTurns.all(queue, priority, JSON.stringify(unknown)) as [string, number | null][]
    for (const [group, last] of found) this.#of(queue, group).last.set(priority, last ?? undefined)
  }

  /** The number of jobs of a group that are neither finished nor claimed. */
  backlog(queue: number, group: string): number {
    const known = this.#of(queue, group)
    return (known.backlog ??= this.#sql.groupBacklog.get(queue, group)![0] as number)
  }

  /** Updates the cache for a job of a group that is new, or was moved. */
  jobChanged(queue: number, job: JobRecord, from: JobState | undefined): void {
    const known = this.#known.get(keyOf(queue, job.group!))
    if (known === undefined) return
    const { last } = known
    const { state, priority, ord } = job
    if (isClaimable(from)) {
      if (!isLeased(state)) last.clear() // its order or priority may have changed
      else if (last.get(priority) === ord) last.delete(priority)
    } else if (isClaimable(state) && last.has(priority)) last.set(priority, Math.max(ord, last.get(priority) ?? ord))
    if (known.backlog !== undefined) known.backlog += Number(isBacklog(state)) - Number(isBacklog(from))
  }

  /** Drops a group from the cache, for changes that it cannot follow. */
  forget(queue: number, group: string): void {
    this.#known.delete(keyOf(queue, group))
  }

  /** Drops all groups if there are many. Call it only when everything known is also in the file. */
  trim(): void {
    if (this.#known.size > MAX_GROUPS) this.#known.clear()
    if (this.#currentTurns.size > MAX_GROUPS) this.#currentTurns.clear()
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
