// stores/sqlite/limits.ts: applies limits to claims: concurrent leases, and claims per interval.
import type { Time } from '../../job/job.js'
import type { Bounds, Rate, TakenTokens } from '../../job/limits.js'
import { nextReturn, tokensLeft, tokensOut, takeTokens } from '../../job/limits.js'
import type { Lane } from './rows.js'
import type { Transaction } from './transaction.js'

/** A queue during a claim: its bounds, and the leases that count against them. */
export interface QueueUsage {
  readonly queue: number
  readonly name: string
  readonly bounds: Bounds
  leases: number
  readonly leasesByName: Map<string, number>
  /** Read when first needed. */
  leasesByGroup: Map<string, number> | undefined
}

/** The usage of a queue before a claim; undefined if nothing can be claimed from it. */
export function usageOf({ sql, cache }: Transaction, name: string): QueueUsage | undefined {
  const queue = cache.queue(name)
  if (queue === undefined) return undefined
  const bounds = cache.bounds(name)
  if (bounds.paused) return undefined
  const usage: QueueUsage = { queue, name, bounds, leases: 0, leasesByName: new Map(), leasesByGroup: undefined }
  if (!bounds.limited) return usage
  for (const [nameOf, leases] of sql.leasesIn.all(queue) as [string, number][]) {
    usage.leases += leases
    usage.leasesByName.set(nameOf, leases)
  }
  return usage.leases >= bounds.limit ? undefined : usage
}

/** Whether no further job of this name may be leased. */
export function isAtLimit({ bounds, leases, leasesByName }: QueueUsage, { name }: Lane): boolean {
  if (!bounds.limited) return false
  return leases >= bounds.limit || (leasesByName.get(name) ?? 0) >= (bounds.limitedNames.get(name) ?? Infinity)
}

/** Whether claims from a lane are limited, whatever the group of the job. */
export function isLimited(usage: QueueUsage, { name, shared }: Lane): boolean {
  const { bounds } = usage
  if (!bounds.limited) return false
  return (
    (shared && isGroupLimited(usage, NO_GROUP)) ||
    bounds.limit !== Infinity ||
    bounds.rate !== undefined ||
    bounds.limitedNames.has(name) ||
    bounds.ratedNames.has(name)
  )
}

/** No group has this name. Its bounds are those that apply to every group. */
const NO_GROUP = ''

/** Whether claims of a group are limited. */
export function isGroupLimited({ bounds }: QueueUsage, group: string): boolean {
  const own = bounds.group(group)
  return own?.concurrency !== undefined || own?.rate !== undefined
}

/** Rates that are checked for removal whenever a new rate is written. */
const SWEEP_LIMIT = 4

/** A rate, and how much of it is left. */
interface Tokens {
  readonly queue: number
  readonly key: string
  readonly rate: Rate
  readonly out: TakenTokens
  readonly left: number
  taken: number
}

/** Tracks limits during one claim. Pass a group only if groups are limited. */
export class Limits {
  readonly #tx: Transaction
  #tokens: Map<string, Tokens> | undefined
  /** When a rate that held jobs back lets more through. */
  again: Time | undefined

  constructor(tx: Transaction) {
    this.#tx = tx
  }

  /** What keeps the next job of a lane from being claimed: a limit of its queue or name, or a limit of its group. */
  reached(usage: QueueUsage, lane: Lane, group: string | undefined): 'lane' | 'group' | undefined {
    const { bounds } = usage
    if (!bounds.limited) return undefined
    if (isAtLimit(usage, lane)) return 'lane'
    if (group !== undefined && this.isGroupAtLimit(usage, group)) return 'group'
    // All rates are checked, because each may set the time to claim again.
    const inQueue = this.#isUsedUp(usage, '', bounds.rate)
    const ofName = this.#isUsedUp(usage, `n${lane.name}`, bounds.ratedNames.get(lane.name))
    const ofGroup = group !== undefined && this.#isUsedUp(usage, `g${group}`, bounds.group(group)?.rate)
    return inQueue || ofName ? 'lane' : ofGroup ? 'group' : undefined
  }

  /** Whether no further job of a group may be leased. */
  isGroupAtLimit(usage: QueueUsage, group: string): boolean {
    const maxLeases = usage.bounds.group(group)?.concurrency
    return maxLeases !== undefined && (this.#leasesByGroup(usage).get(group) ?? 0) >= maxLeases
  }

  /** Counts a claimed job. */
  countClaim(usage: QueueUsage, { name }: Lane, group: string | undefined): void {
    const { bounds, leasesByName, leasesByGroup } = usage
    if (!bounds.limited) return
    usage.leases++
    leasesByName.set(name, (leasesByName.get(name) ?? 0) + 1)
    this.#takeToken(usage, '', bounds.rate)
    this.#takeToken(usage, `n${name}`, bounds.ratedNames.get(name))
    if (group === undefined) return
    leasesByGroup?.set(group, (leasesByGroup.get(group) ?? 0) + 1)
    this.#takeToken(usage, `g${group}`, bounds.group(group)?.rate)
  }

  /** Stores the tokens that were taken. */
  write(): void {
    const { sql, now } = this.#tx
    for (const { queue, key, rate, out: before, taken } of this.#tokens?.values() ?? []) {
      if (taken === 0) continue
      const after = takeTokens(before, rate, taken, now)
      sql.setRate.run(queue, key, after.at(-1)![0] + rate.per, JSON.stringify(after))
      if (before.length === 0) this.#sweep(queue)
    }
  }

  /** Removes some rates whose tokens have all returned, in rotation: groups come and go. */
  #sweep(queue: number): void {
    const { sql, cache, now } = this.#tx
    const rates = sql.ratesAfter.all(queue, cache.sweptRates.get(queue) ?? '', SWEEP_LIMIT) as [string, Time][]
    for (const [key, until] of rates) if (until <= now) sql.dropRate.run(queue, key)
    cache.sweptRates.set(queue, rates.length < SWEEP_LIMIT ? '' : rates.at(-1)![0])
  }

  #leasesByGroup(usage: QueueUsage): Map<string, number> {
    if (usage.leasesByGroup === undefined) {
      const { sql, cache } = this.#tx
      usage.leasesByGroup = new Map(sql.groupLeases.all(usage.queue) as [string, number][])
      for (const [group, orphans] of cache.orphans ? (sql.groupOrphans.all(usage.queue) as [string, number][]) : []) {
        usage.leasesByGroup.set(group, (usage.leasesByGroup.get(group) ?? 0) + orphans)
      }
    }
    return usage.leasesByGroup
  }

  #isUsedUp(usage: QueueUsage, key: string, rate: Rate | undefined): boolean {
    if (rate === undefined) return false
    const tokens = this.#tokensOf(usage, key, rate)
    if (tokens.taken < tokens.left) return false
    const at = nextReturn(tokens.out.length > 0 ? tokens.out : takeTokens([], rate, 1, this.#tx.now), rate)
    if (at !== undefined && (this.again === undefined || at < this.again)) this.again = at
    return true
  }

  #takeToken(usage: QueueUsage, key: string, rate: Rate | undefined): void {
    if (rate !== undefined) this.#tokensOf(usage, key, rate).taken++
  }

  #tokensOf({ queue }: QueueUsage, key: string, rate: Rate): Tokens {
    const { sql, now } = this.#tx
    this.#tokens ??= new Map()
    const at = `${queue} ${key}`
    let tokens = this.#tokens.get(at)
    if (tokens === undefined) {
      const stored = sql.rate.get(queue, key)?.[0] as string | undefined
      const before = tokensOut(stored === undefined ? [] : (JSON.parse(stored) as TakenTokens), rate, now)
      this.#tokens.set(at, (tokens = { queue, key, rate, out: before, left: tokensLeft(before, rate), taken: 0 }))
    }
    return tokens
  }
}
