// stores/memory/limits.ts: applies limits to claims: concurrent leases, and claims per interval.
import type { Time } from '../../job/job.js'
import type { Rate, TakenTokens } from '../../job/limits.js'
import { nextReturn, tokensLeft, tokensOut, takeTokens } from '../../job/limits.js'
import type { GroupRow, NameRow, QueueRow } from './row.js'

/** Whether claims of this name, or of the group if given, are limited. */
export function isLimited({ name, limit, queue }: NameRow, group: GroupRow | undefined): boolean {
  const { bounds } = queue
  if (!bounds.limited) return false
  if (limit !== Infinity || queue.limit !== Infinity || bounds.rate !== undefined || bounds.ratedNames.has(name)) {
    return true
  }
  const own = group === undefined ? undefined : bounds.group(group.name)
  return own?.concurrency !== undefined || own?.rate !== undefined
}

/** A rate, and how much of it is left. */
interface Tokens {
  readonly queue: QueueRow
  readonly key: string
  readonly rate: Rate
  readonly out: TakenTokens
  readonly left: number
  taken: number
}

/** Tracks limits during one claim. */
export class Limits {
  readonly #now: Time
  #tokens: Map<QueueRow, Map<string, Tokens>> | undefined
  /** When a rate that held jobs back lets more through. */
  again: Time | undefined

  constructor(now: Time) {
    this.#now = now
  }

  /** Whether no further job of this name, and of the group if given, may be claimed. */
  isReached(name: NameRow, group: GroupRow | undefined): boolean {
    const { queue } = name
    if (!queue.bounds.limited) return false
    if (name.leases >= name.limit || queue.leases >= queue.limit) return true
    if (group !== undefined) {
      const maxLeases = queue.bounds.group(group.name)?.concurrency
      if (maxLeases !== undefined && group.leases >= maxLeases) return true
    }
    let reached = false
    this.#each(name, group, (tokens) => {
      if (tokens.taken < tokens.left) return
      reached = true
      const at = nextReturn(tokens.out.length > 0 ? tokens.out : takeTokens([], tokens.rate, 1, this.#now), tokens.rate)
      if (at !== undefined && (this.again === undefined || at < this.again)) this.again = at
    })
    return reached
  }

  /** Counts a claimed job. */
  countClaim(name: NameRow, group: GroupRow | undefined): void {
    if (!name.queue.bounds.limited) return
    this.#each(name, group, (tokens) => void tokens.taken++)
  }

  /** Stores the tokens that were taken. */
  write(): void {
    for (const byKey of this.#tokens?.values() ?? []) {
      for (const { queue, key, rate, out: before, taken } of byKey.values()) {
        const after = takeTokens(before, rate, taken, this.#now)
        if (after.length === 0) queue.takenTokens.delete(key)
        else queue.takenTokens.set(key, after)
      }
    }
  }

  #each({ name, queue }: NameRow, group: GroupRow | undefined, visit: (tokens: Tokens) => void): void {
    const { bounds } = queue
    if (bounds.rate !== undefined) visit(this.#tokensOf(queue, '', bounds.rate))
    const nameRate = bounds.ratedNames.get(name)
    if (nameRate !== undefined) visit(this.#tokensOf(queue, `n${name}`, nameRate))
    const ownRate = group === undefined ? undefined : bounds.group(group.name)?.rate
    if (ownRate !== undefined) visit(this.#tokensOf(queue, `g${group!.name}`, ownRate))
  }

  #tokensOf(queue: QueueRow, key: string, rate: Rate): Tokens {
    this.#tokens ??= new Map()
    let byKey = this.#tokens.get(queue)
    if (byKey === undefined) this.#tokens.set(queue, (byKey = new Map()))
    let tokens = byKey.get(key)
    if (tokens === undefined) {
      const before = tokensOut(queue.takenTokens.get(key) ?? [], rate, this.#now)
      byKey.set(key, (tokens = { queue, key, rate, out: before, left: tokensLeft(before, rate), taken: 0 }))
    }
    return tokens
  }
}
