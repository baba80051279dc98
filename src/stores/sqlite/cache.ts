// stores/sqlite/cache.ts: what a connection caches of the file between commits, as long as no other connection writes to it.
import type { AttemptError, JobHeader, JobRecord, Time } from '../../job/job.js'
import { headerOf } from '../../job/record.js'
import { cellKey } from '../../store/settings.js'
import { BoundedCache } from '../bounded-cache.js'
import { boundsOf } from '../../job/limits.js'
import type { Bounds } from '../../job/limits.js'
import { SettingsCache } from '../job-settings.js'
import type { SqlRow } from './file/driver.js'
import { ExpiredHeads } from './expired-heads.js'
import { Groups } from './groups.js'
import { failureOf, newRecordOf, recordOf } from './rows.js'
import type { Found, Lane } from './rows.js'
import type { Statements } from './statements.js'

/** Queues of which it is cached how far they were swept. */
const MAX_SWEPT = 10_000

/** Numbers of the whole store. */
export interface Numbers {
  /** The last number assigned to a job, as its insertion number or its order. */
  number: number
  /** The highest fence of any job at its removal. New jobs start there, whatever their id. */
  fence: number
  /** The last event, and the size of all events up to it. */
  event: number
  bytes: number
  /** Events up to this one are no longer kept. */
  floor: number
  /** 1: commits were made without recording their events. */
  unrecorded: number
  /** The last notice to other handles. */
  notice: number
}

/** A handle that watches this file. */
export interface Peer {
  readonly id: string
  readonly until: Time
  readonly eventsUntil: Time
}

/** Cached until another connection writes. */
interface Volatile {
  numbers: Numbers | undefined
  bounds: BoundedCache<string, Bounds>
  peers: readonly Peer[] | undefined
  groups: Groups | undefined
  expired: ExpiredHeads
  /** Whether there are any at all. Most files have none, and need not be queried every time. */
  openEdges: boolean | undefined
  windows: boolean | undefined
  orphans: boolean | undefined
}

const emptyVolatile = (): Volatile => ({
  numbers: undefined,
  bounds: new BoundedCache(),
  peers: undefined,
  groups: undefined,
  expired: new ExpiredHeads(),
  openEdges: undefined,
  windows: undefined,
  orphans: undefined,
})

/** The cache of one connection. Everything in it can be read again from the file. */
export class Cache {
  readonly sql: Statements
  readonly settings = new SettingsCache()
  readonly #queues = new BoundedCache<string, number>()
  readonly #lanes = new BoundedCache<number, Lane>()
  readonly #lanesByName = new BoundedCache<string, Lane>()
  #lastLane: Lane | undefined
  /** The last rate that was swept, by queue. */
  readonly sweptRates = new Map<number, string>()
  /** The last turn that was swept, by queue. */
  readonly sweptTurns = new Map<number, string>()
  #version: unknown
  #volatile = emptyVolatile()

  constructor(sql: Statements) {
    this.sql = sql
  }

  /**
   * Checks whether another connection has written since the last check. Call it within a transaction, so that the
   * result stays valid.
   */
  refresh(): 'same' | 'changed' | 'unknown' {
    const version = this.sql.dataVersion.get()![0]
    if (version === this.#version) return 'same'
    const change = this.#version === undefined ? 'unknown' : 'changed'
    this.#version = version
    this.#volatile = emptyVolatile()
    return change
  }

  /** Drops everything: a transaction was rolled back, and with it the rows that it had created. */
  forget(): void {
    this.#version = undefined
    this.forgetCreated()
    this.#volatile = emptyVolatile()
  }

  /** Drops what a group that was rolled back may have created. Numbers are kept, and go on counting. */
  forgetCreated(): void {
    const { numbers, peers } = this.#volatile
    this.#volatile = { ...emptyVolatile(), numbers, peers }
    this.#queues.clear()
    this.#lanes.clear()
    this.#lanesByName.clear()
    this.#lastLane = undefined
  }

  /** The numbers. A caller that changes them must write them to the file. */
  get numbers(): Numbers {
    if (this.#volatile.numbers === undefined) {
      const numbers: Numbers = { number: 0, fence: 0, event: 0, bytes: 0, floor: 0, unrecorded: 0, notice: 0 }
      for (const [what, n] of this.sql.numbers.all()) numbers[what as keyof Numbers] = n as number
      this.#volatile.numbers = numbers
    }
    return this.#volatile.numbers
  }

  /** The handles that watch this file. */
  get peers(): readonly Peer[] {
    this.#volatile.peers ??= this.sql.peers.all().map(([id, until, eventsUntil]): Peer => ({
      id: id as string,
      until: until as number,
      eventsUntil: eventsUntil as number,
    }))
    return this.#volatile.peers
  }

  /** Call after peers were written. */
  forgetPeers(): void {
    this.#volatile.peers = undefined
  }

  /** What is known of groups. */
  get groups(): Groups {
    return (this.#volatile.groups ??= new Groups(this.sql))
  }

  /** How far lanes hold none but expired jobs. */
  get expired(): ExpiredHeads {
    return this.#volatile.expired
  }

  /** Limits the size of the cache, in groups and rates. Names are limited where they are added: reads add some as well. */
  trim(): void {
    this.#volatile.groups?.trim()
    for (const swept of [this.sweptRates, this.sweptTurns]) if (swept.size > MAX_SWEPT) swept.clear()
  }

  /** The bounds of a queue. */
  bounds(queue: string): Bounds {
    let bounds = this.#volatile.bounds.get(queue)
    if (bounds === undefined) {
      const cell = (key: string): string | undefined => this.sql.cell.get(key)?.[1] as string | undefined
      bounds = boundsOf(cell(cellKey.pause(queue)), cell(cellKey.limit(queue)))
      this.#volatile.bounds.trim()
      this.#volatile.bounds.set(queue, bounds)
    }
    return bounds
  }

  /** Call after a cell that may bound a queue was written. */
  forgetBounds(queue: string): void {
    this.#volatile.bounds.delete(queue)
  }

  /** Whether any edge is open. */
  get openEdges(): boolean {
    return (this.#volatile.openEdges ??= this.sql.anyOpenEdge.get() !== undefined)
  }

  /** Set to true after edges were opened, and to undefined after edges were closed, so that the next read queries it. */
  set openEdges(known: boolean | undefined) {
    this.#volatile.openEdges = known
  }

  /** Whether any dedup key has a window. */
  get windows(): boolean {
    return (this.#volatile.windows ??= this.sql.anyWindow.get() !== undefined)
  }

  set windows(known: boolean | undefined) {
    this.#volatile.windows = known
  }

  /** Whether there is any orphaned lease. */
  get orphans(): boolean {
    return (this.#volatile.orphans ??= this.sql.anyOrphan.get() !== undefined)
  }

  set orphans(known: boolean | undefined) {
    this.#volatile.orphans = known
  }

  /** The id of a queue, if it has ever held a job. */
  queue(name: string): number | undefined {
    let id = this.#queues.get(name)
    if (id === undefined) {
      id = this.sql.queueNamed.get(name)?.[0] as number | undefined
      if (id !== undefined) this.#keepQueue(name, id)
    }
    return id
  }

  /** The lane of this id. */
  lane(id: number): Lane {
    let lane = this.#lanes.get(id)
    if (lane === undefined) {
      const [, queue, queueName, name, version, shared] = this.sql.lane.get(id)!
      lane = this.#keep({
        id,
        queue: queue as number,
        queueName: queueName as string,
        name: name as string,
        version: version as number,
        shared: shared === 1,
      })
    }
    return lane
  }

  /** The lane of a job's queue, name and version, created if it does not exist. */
  laneOf({ queue: queueName, name, version, group }: Pick<JobRecord, 'queue' | 'name' | 'version' | 'group'>): Lane {
    const shared = group !== undefined
    const lastLane = this.#lastLane
    if (
      lastLane !== undefined &&
      lastLane.name === name &&
      lastLane.queueName === queueName &&
      lastLane.version === version &&
      lastLane.shared === shared
    ) {
      return lastLane
    }
    let lane = this.#lanesByName.get(laneKey(queueName, name, version, shared))
    if (lane === undefined) {
      const queue = this.queue(queueName) ?? this.#addQueue(queueName)
      const key = [queue, name, version, Number(shared)]
      const [id] = this.sql.laneNamed.get(...key) ?? this.sql.addLane.get(...key)!
      lane = this.#keep({ id: id as number, queue, queueName, name, version, shared })
    }
    this.#lastLane = lane
    return lane
  }

  /** The job in a row of `jobById` or `jobBySeq`; `errors` reads its failed attempts. */
  found(row: SqlRow, errors = this.#errors): Found {
    const lane = this.lane(row[2] as number)
    return { seq: row[0] as number, lane, job: recordOf(row, lane, this.settings, errors) }
  }

  /** The job in a row of `laneHead`, `sharedHead` or `groupHead`, which has not changed since it was added. */
  newRecord(row: SqlRow, lane: Lane): JobRecord {
    return newRecordOf(row, lane, this.settings, this.#body)
  }

  /** The job of this id, if there is one. */
  byId(id: string): Found | undefined {
    const row = this.sql.jobById.get(id)
    return row && this.found(row)
  }

  /** The job of this number, which must exist. */
  bySeq(seq: number): Found {
    return this.found(this.sql.jobBySeq.get(seq)!)
  }

  /**
   * The job of this id, with only what changes need: without its data, memo and progress, and without the errors of its
   * failed attempts. A commit may change hundreds of jobs, and must not read all of their payloads.
   */
  lightById(id: string): Found | undefined {
    const row = this.sql.lightById.get(id)
    return row && this.found(row, this.#attempts)
  }

  /** The job of this number, which must exist, with only what changes need. */
  lightBySeq(seq: number): Found {
    return this.found(this.sql.lightBySeq.get(seq)!, this.#attempts)
  }

  /** The header of the job of this number, which must exist. */
  headerBySeq(seq: number): JobHeader {
    return headerOf(this.found(this.sql.headerBySeq.get(seq)!).job)
  }

  readonly #errors = (seq: number): readonly AttemptError[] => this.sql.failuresOf.all(seq).map(failureOf)

  readonly #attempts = (seq: number): readonly AttemptError[] => this.sql.failuresIn.all(seq).map(failureOf)

  readonly #body = (seq: number): string => this.sql.bodyOf.get(seq)![0] as string

  #addQueue(name: string): number {
    const id = this.sql.addQueue.get(name)![0] as number
    this.#keepQueue(name, id)
    return id
  }

  #keepQueue(name: string, id: number): void {
    this.#queues.trim()
    this.#queues.set(name, id)
  }

  #keep(lane: Lane): Lane {
    this.#lanes.trim()
    this.#lanesByName.trim()
    this.#lanes.set(lane.id, lane)
    this.#lanesByName.set(laneKey(lane.queueName, lane.name, lane.version, lane.shared), lane)
    return lane
  }
}

function laneKey(queue: string, name: string, version: number, shared: boolean): string {
  return `${version}${shared ? '+' : ' '}${queue.length} ${queue}${name}`
}
