// stores/memory/limits.ts: what bounds claims: leases at a time, and claims in a stretch of time.
import type { Time } from '../../job/job.js'
import type { Rate } from '../../store/settings.js'
import { back, left, out, take } from '../rates.js'
import type { Taken } from '../rates.js'
import type { Grouped, Named, Queued } from './row.js'

/** Whether claims of this name, or of the group if one is named, are bounded. */
export function isLimited({ name, limit, queue }: Named, group: Grouped | undefined): boolean {
  const { bounds } = queue
  if (!bounds.limited) return false
  if (limit !== Infinity || queue.limit !== Infinity || bounds.rate !== undefined || bounds.ratedNames.has(name)) {
    return true
  }
  const own = group === undefined ? undefined : bounds.group(group.name)
  return own?.concurrency !== undefined || own?.rate !== undefined
}

/** A rate, and what of it is left. */
interface Tokens {
  readonly queue: Queued
  readonly key: string
  readonly rate: Rate
  readonly out: Taken
  readonly left: number
  took: number
}

/** What the claims of one ask leave of the bounds. */
export class Limits {
  readonly #now: Time
  #tokens: Map<Queued, Map<string, Tokens>> | undefined
  /** When a rate that held something back lets more through. */
  again: Time | undefined

  constructor(now: Time) {
    this.#now = now
  }

  /** Whether no further job of this name, and of the group if one is named, may be claimed. */
  isReached(name: Named, group: Grouped | undefined): boolean {
    const { queue } = name
    if (!queue.bounds.limited) return false
    if (name.leases >= name.limit || queue.leases >= queue.limit) return true
    if (group !== undefined) {
      const most = queue.bounds.group(group.name)?.concurrency
      if (most !== undefined && group.leases >= most) return true
    }
    let reached = false
    this.#each(name, group, (tokens) => {
      if (tokens.took < tokens.left) return
      reached = true
      const at = back(tokens.out.length > 0 ? tokens.out : take([], tokens.rate, 1, this.#now), tokens.rate)
      if (at !== undefined && (this.again === undefined || at < this.again)) this.again = at
    })
    return reached
  }

  /** A job was claimed. */
  took(name: Named, group: Grouped | undefined): void {
    if (!name.queue.bounds.limited) return
    this.#each(name, group, (tokens) => void tokens.took++)
  }

  /** Writes down what was taken. */
  write(): void {
    for (const byKey of this.#tokens?.values() ?? []) {
      for (const { queue, key, rate, out: before, took } of byKey.values()) {
        const after = take(before, rate, took, this.#now)
        if (after.length === 0) queue.taken.delete(key)
        else queue.taken.set(key, after)
      }
    }
  }

  #each({ name, queue }: Named, group: Grouped | undefined, look: (tokens: Tokens) => void): void {
    const { bounds } = queue
    if (bounds.rate !== undefined) look(this.#of(queue, '', bounds.rate))
    const named = bounds.ratedNames.get(name)
    if (named !== undefined) look(this.#of(queue, `n${name}`, named))
    const own = group === undefined ? undefined : bounds.group(group.name)?.rate
    if (own !== undefined) look(this.#of(queue, `g${group!.name}`, own))
  }

  #of(queue: Queued, key: string, rate: Rate): Tokens {
    this.#tokens ??= new Map()
    let byKey = this.#tokens.get(queue)
    if (byKey === undefined) this.#tokens.set(queue, (byKey = new Map()))
    let tokens = byKey.get(key)
    if (tokens === undefined) {
      const before = out(queue.taken.get(key) ?? [], rate, this.#now)
      byKey.set(key, (tokens = { queue, key, rate, out: before, left: left(before, rate), took: 0 }))
    }
    return tokens
  }
}
