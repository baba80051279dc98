// engine/limits.ts: applies limits to claims: concurrent leases, and claims per interval.
import type { Holds } from '../job/holds.js'
import type { Time } from '../job/job.js'
import type { Bounds, Rate, TakenTokens } from '../job/limits.js'
import { nextReturn, takeTokens, tokensLeft, tokensOut } from '../job/limits.js'
import type { ClaimWorkspace } from './workspace.js'

/** A queue during a claim: its bounds, and the leases that count against them. */
export interface QueueUsage {
  readonly queue: string
  readonly bounds: Bounds
  /** Holds that are not over, by name and by group; undefined: none. */
  readonly held: { readonly names: ReadonlyMap<string, Time>; readonly groups: ReadonlyMap<string, Time> } | undefined
  leases: number
  readonly leasesByName: Map<string, number>
  /** Read when first needed. */
  leasesByGroup: Map<string, number> | undefined
}

/** A rate, and how much of it is left. */
interface Tokens {
  readonly queue: string
  readonly key: string
  readonly rate: Rate
  readonly out: TakenTokens
  readonly left: number
  taken: number
}

/** No group has this name. Its bounds are those that apply to every group. */
const NO_GROUP = ''

const NO_LEASES: Map<string, number> = new Map()

/** Tracks limits during one claim. Pass a group only if groups are limited. */
export class Limits {
  readonly #workspace: ClaimWorkspace
  readonly #now: Time
  #tokens: Map<string, Tokens> | undefined
  /** When a rate that held jobs back lets more through, or a hold ends. */
  again: Time | undefined

  constructor(workspace: ClaimWorkspace, now: Time) {
    this.#workspace = workspace
    this.#now = now
  }

  /** The usage of a queue before a claim; undefined if nothing can be claimed from it. */
  usageOf(queue: string): QueueUsage | undefined {
    const bounds = this.#workspace.bounds(queue)
    if (bounds.paused) return undefined
    const held = bounds.holds === undefined ? undefined : this.#heldNow(queue, bounds.holds)
    if (held === 'queue') return undefined
    if (!bounds.limited) return { queue, bounds, held, leases: 0, leasesByName: NO_LEASES, leasesByGroup: undefined }
    const leasesByName = this.#workspace.leasesByName(queue)
    let leases = 0
    for (const count of leasesByName.values()) leases += count
    if (leases >= bounds.limit) return undefined
    return { queue, bounds, held, leases, leasesByName, leasesByGroup: undefined }
  }

  /** The holds of a queue that are not over. */
  #heldNow(queue: string, holds: Holds): 'queue' | QueueUsage['held'] {
    if (holds.queue !== undefined && holds.queue > this.#now) {
      if (this.#workspace.hasWaiting(queue)) this.#claimAgain(holds.queue)
      return 'queue'
    }
    const [names, groups] = [holds.names, holds.groups].map(
      (ends) => new Map([...ends].filter(([, until]) => until > this.#now)),
    )
    return names!.size + groups!.size === 0 ? undefined : { names: names!, groups: groups! }
  }

  /** Whether a hold keeps all jobs of a name, of which some wait, from being claimed. */
  isHeld({ held }: QueueUsage, name: string): boolean {
    return this.#isOn(held?.names.get(name))
  }

  /** Whether a hold keeps the jobs of a group, of which some wait, from being claimed. */
  isGroupHeld({ held }: QueueUsage, group: string): boolean {
    return this.#isOn(held?.groups.get(group))
  }

  /** Claims again when this hold is over, if there is one. */
  #isOn(until: Time | undefined): boolean {
    if (until === undefined) return false
    this.#claimAgain(until)
    return true
  }

  #claimAgain(at: Time): void {
    if (this.again === undefined || at < this.again) this.again = at
  }

  /** Whether no further job of this name may be leased. */
  isAtLimit({ bounds, leases, leasesByName }: QueueUsage, name: string): boolean {
    if (!bounds.limited) return false
    return leases >= bounds.limit || (leasesByName.get(name) ?? 0) >= (bounds.limitedNames.get(name) ?? Infinity)
  }

  /** Whether no further job of a group may be leased. */
  isGroupAtLimit(usage: QueueUsage, group: string): boolean {
    if (usage.held !== undefined && this.isGroupHeld(usage, group)) return true
    const maxLeases = usage.bounds.group(group)?.concurrency
    if (maxLeases === undefined) return false
    usage.leasesByGroup ??= this.#workspace.leasesByGroup(usage.queue)
    return (usage.leasesByGroup.get(group) ?? 0) >= maxLeases
  }

  /** What keeps the next job of a name from being claimed: a limit of its queue or name, or a limit of its group. */
  reached(usage: QueueUsage, name: string, group: string | undefined): 'lane' | 'group' | undefined {
    const { bounds } = usage
    if (usage.held !== undefined && group !== undefined && this.isGroupHeld(usage, group)) return 'group'
    if (!bounds.limited) return undefined
    if (this.isAtLimit(usage, name)) return 'lane'
    if (group !== undefined && this.isGroupAtLimit(usage, group)) return 'group'
    // All rates are checked, because each may set the time to claim again.
    const inQueue = this.#isUsedUp(usage.queue, '', bounds.rate)
    const ofName = this.#isUsedUp(usage.queue, `n${name}`, bounds.ratedNames.get(name))
    const ofGroup = group !== undefined && this.#isUsedUp(usage.queue, `g${group}`, bounds.group(group)?.rate)
    return inQueue || ofName ? 'lane' : ofGroup ? 'group' : undefined
  }

  /** Counts a claimed job. */
  countClaim(usage: QueueUsage, name: string, group: string | undefined): void {
    const { queue, bounds, leasesByName, leasesByGroup } = usage
    if (!bounds.limited) return
    usage.leases++
    leasesByName.set(name, (leasesByName.get(name) ?? 0) + 1)
    this.#takeToken(queue, '', bounds.rate)
    this.#takeToken(queue, `n${name}`, bounds.ratedNames.get(name))
    if (group === undefined) return
    leasesByGroup?.set(group, (leasesByGroup.get(group) ?? 0) + 1)
    this.#takeToken(queue, `g${group}`, bounds.group(group)?.rate)
  }

  /** Stores the tokens that were taken. */
  write(): void {
    for (const { queue, key, rate, out, taken } of this.#tokens?.values() ?? []) {
      if (taken > 0) this.#workspace.takeTokens(queue, key, takeTokens(out, rate, taken, this.#now), rate)
    }
  }

  #isUsedUp(queue: string, key: string, rate: Rate | undefined): boolean {
    if (rate === undefined) return false
    const tokens = this.#tokensOf(queue, key, rate)
    if (tokens.taken < tokens.left) return false
    const at = nextReturn(tokens.out.length > 0 ? tokens.out : takeTokens([], rate, 1, this.#now), rate)
    if (at !== undefined) this.#claimAgain(at)
    return true
  }

  #takeToken(queue: string, key: string, rate: Rate | undefined): void {
    if (rate !== undefined) this.#tokensOf(queue, key, rate).taken++
  }

  #tokensOf(queue: string, key: string, rate: Rate): Tokens {
    this.#tokens ??= new Map()
    const at = `${queue.length} ${queue}${key}`
    let tokens = this.#tokens.get(at)
    if (tokens === undefined) {
      const out = tokensOut(this.#workspace.takenTokens(queue, key), rate, this.#now)
      this.#tokens.set(at, (tokens = { queue, key, rate, out, left: tokensLeft(out, rate), taken: 0 }))
    }
    return tokens
  }
}

/** Whether claims of a name are limited, whatever the group of the job; `shared`: its jobs have groups. */
export function isLimited({ bounds }: QueueUsage, name: string, shared: boolean): boolean {
  if (!bounds.limited) return false
  return (
    (shared && isGroupLimited(bounds, NO_GROUP)) ||
    bounds.limit !== Infinity ||
    bounds.rate !== undefined ||
    bounds.limitedNames.has(name) ||
    bounds.ratedNames.has(name)
  )
}

/** Whether claims of a group are limited. */
export function isGroupLimited(bounds: Bounds, group: string): boolean {
  const own = bounds.group(group)
  return own?.concurrency !== undefined || own?.rate !== undefined
}
