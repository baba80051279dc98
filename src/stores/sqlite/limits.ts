// stores/sqlite/limits.ts: what bounds claims: leases at a time, and claims in a stretch of time.
import type { Time } from '../../job/job.js'
import type { Rate } from '../../store/settings.js'
import type { Bounds } from '../queue-bounds.js'
import { back, left, out, take } from '../rates.js'
import type { Taken } from '../rates.js'
import type { Lane } from './rows.js'
import type { Transaction } from './transaction.js'

/** A queue that is asked: its bounds, and the leases that count against them. */
export interface Asked {
  readonly queue: number
  readonly name: string
  readonly bounds: Bounds
  leases: number
  readonly leasesByName: Map<string, number>
  /** Read when first needed. */
  leasesByGroup: Map<string, number> | undefined
}

/** A queue as it is before the first claim; undefined where it gives nothing. */
export function askedOf({ sql, ground }: Transaction, name: string): Asked | undefined {
  const queue = ground.queue(name)
  if (queue === undefined) return undefined
  const bounds = ground.bounds(name)
  if (bounds.paused) return undefined
  const asked: Asked = { queue, name, bounds, leases: 0, leasesByName: new Map(), leasesByGroup: undefined }
  if (!bounds.limited) return asked
  for (const [of, leases] of sql.leasesIn.all(queue) as [string, number][]) {
    asked.leases += leases
    asked.leasesByName.set(of, leases)
  }
  return asked.leases >= bounds.limit ? undefined : asked
}

/** Whether no further lease of this name may be given. */
export function isAtLimit({ bounds, leases, leasesByName }: Asked, { name }: Lane): boolean {
  if (!bounds.limited) return false
  return leases >= bounds.limit || (leasesByName.get(name) ?? 0) >= (bounds.limitedNames.get(name) ?? Infinity)
}

/** Whether claims from a lane are bounded, whosever the job. */
export function isLimited(asked: Asked, { name, shared }: Lane): boolean {
  const { bounds } = asked
  if (!bounds.limited) return false
  return (
    (shared && isGroupLimited(asked, ANY)) ||
    bounds.limit !== Infinity ||
    bounds.rate !== undefined ||
    bounds.limitedNames.has(name) ||
    bounds.ratedNames.has(name)
  )
}

/** No group has this name; what bounds it bounds every group. */
const ANY = ''

/** Whether claims of a group are bounded. */
export function isGroupLimited({ bounds }: Asked, group: string): boolean {
  const own = bounds.group(group)
  return own?.concurrency !== undefined || own?.rate !== undefined
}

/** Rates that are looked at for each that is new, whether they can be cleared away. */
const SWEPT = 4

/** A rate, and what of it is left. */
interface Tokens {
  readonly queue: number
  readonly key: string
  readonly rate: Rate
  readonly out: Taken
  readonly left: number
  took: number
}

/** What the claims of one ask leave of the bounds. A group is given where groups are bounded. */
export class Limits {
  readonly #tx: Transaction
  #tokens: Map<string, Tokens> | undefined
  /** When a rate that held something back lets more through. */
  again: Time | undefined

  constructor(tx: Transaction) {
    this.#tx = tx
  }

  /** What keeps the next job of a lane from being claimed: a bound of its queue or name, or one of its group. */
  reached(asked: Asked, lane: Lane, group: string | undefined): 'lane' | 'group' | undefined {
    const { bounds } = asked
    if (!bounds.limited) return undefined
    if (isAtLimit(asked, lane)) return 'lane'
    if (group !== undefined && this.isGroupAtLimit(asked, group)) return 'group'
    // Each is looked at, for each may say when to ask again.
    const inQueue = this.#isUsedUp(asked, '', bounds.rate)
    const ofName = this.#isUsedUp(asked, `n${lane.name}`, bounds.ratedNames.get(lane.name))
    const ofGroup = group !== undefined && this.#isUsedUp(asked, `g${group}`, bounds.group(group)?.rate)
    return inQueue || ofName ? 'lane' : ofGroup ? 'group' : undefined
  }

  /** Whether no further lease of a group may be given. */
  isGroupAtLimit(asked: Asked, group: string): boolean {
    const most = asked.bounds.group(group)?.concurrency
    return most !== undefined && (this.#leases(asked).get(group) ?? 0) >= most
  }

  /** A job was claimed. */
  took(asked: Asked, { name }: Lane, group: string | undefined): void {
    const { bounds, leasesByName, leasesByGroup } = asked
    if (!bounds.limited) return
    asked.leases++
    leasesByName.set(name, (leasesByName.get(name) ?? 0) + 1)
    this.#take(asked, '', bounds.rate)
    this.#take(asked, `n${name}`, bounds.ratedNames.get(name))
    if (group === undefined) return
    leasesByGroup?.set(group, (leasesByGroup.get(group) ?? 0) + 1)
    this.#take(asked, `g${group}`, bounds.group(group)?.rate)
  }

  /** Writes down what was taken. */
  write(): void {
    const { sql, now } = this.#tx
    for (const { queue, key, rate, out: before, took } of this.#tokens?.values() ?? []) {
      if (took === 0) continue
      const after = take(before, rate, took, now)
      sql.setRate.run(queue, key, after.at(-1)![0] + rate.per, JSON.stringify(after))
      if (before.length === 0) this.#sweep(queue)
    }
  }

  /** Clears away some of what was taken long ago, going round: groups come and go. */
  #sweep(queue: number): void {
    const { sql, ground, now } = this.#tx
    const rates = sql.ratesAfter.all(queue, ground.swept.get(queue) ?? '', SWEPT) as [string, Time][]
    for (const [key, until] of rates) if (until <= now) sql.dropRate.run(queue, key)
    ground.swept.set(queue, rates.length < SWEPT ? '' : rates.at(-1)![0])
  }

  #leases(asked: Asked): Map<string, number> {
    if (asked.leasesByGroup === undefined) {
      const { sql, ground } = this.#tx
      asked.leasesByGroup = new Map(sql.groupLeases.all(asked.queue) as [string, number][])
      for (const [group, orphans] of ground.orphans ? (sql.groupOrphans.all(asked.queue) as [string, number][]) : []) {
        asked.leasesByGroup.set(group, (asked.leasesByGroup.get(group) ?? 0) + orphans)
      }
    }
    return asked.leasesByGroup
  }

  #isUsedUp(asked: Asked, key: string, rate: Rate | undefined): boolean {
    if (rate === undefined) return false
    const tokens = this.#of(asked, key, rate)
    if (tokens.took < tokens.left) return false
    const at = back(tokens.out.length > 0 ? tokens.out : take([], rate, 1, this.#tx.now), rate)
    if (at !== undefined && (this.again === undefined || at < this.again)) this.again = at
    return true
  }

  #take(asked: Asked, key: string, rate: Rate | undefined): void {
    if (rate !== undefined) this.#of(asked, key, rate).took++
  }

  #of({ queue }: Asked, key: string, rate: Rate): Tokens {
    const { sql, now } = this.#tx
    this.#tokens ??= new Map()
    const at = `${queue} ${key}`
    let tokens = this.#tokens.get(at)
    if (tokens === undefined) {
      const written = sql.rate.get(queue, key)?.[0] as string | undefined
      const before = out(written === undefined ? [] : (JSON.parse(written) as Taken), rate, now)
      this.#tokens.set(at, (tokens = { queue, key, rate, out: before, left: left(before, rate), took: 0 }))
    }
    return tokens
  }
}
