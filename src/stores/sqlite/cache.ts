// stores/sqlite/cache.ts: what a connection remembers of the file between commits, as long as nobody else writes to it.
import type { AttemptError, JobHeader, JobRecord, Time } from '../../job/job.js'
import { headerOf } from '../../job/record.js'
import { cellKey } from '../../store/settings.js'
import { boundsOf } from '../queue-bounds.js'
import type { Bounds } from '../queue-bounds.js'
import { Settings } from '../job-settings.js'
import type { SqlRow } from './driver.js'
import { Groups } from './groups.js'
import { failureOf, recordOf } from './rows.js'
import type { Found, Lane } from './rows.js'
import type { Statements } from './statements.js'

/** Numbers of the whole store. */
export interface Numbers {
  /** The last one given to a job, as its place in the order of insertion or in line. */
  number: number
  /** The highest fence that a job had when it was removed: new jobs begin there, whatever their id. */
  fence: number
  /** The last event, and the size of all events up to it. */
  event: number
  bytes: number
  /** Events up to this one are no longer held. */
  floor: number
  /** 1: commits went by without recording what they had to tell. */
  unrecorded: number
  /** The last notice to other handles. */
  notice: number
}

/** A handle that watches. */
export interface Peer {
  readonly id: string
  readonly until: Time
  readonly eventsUntil: Time
}

/** What is remembered until another connection writes. */
interface Volatile {
  numbers: Numbers | undefined
  bounds: Map<string, Bounds>
  peers: readonly Peer[] | undefined
  groups: Groups | undefined
  /** Whether there are any at all; most files have none, and need not be asked again and again. */
  openEdges: boolean | undefined
  windows: boolean | undefined
  orphans: boolean | undefined
}

const nothing = (): Volatile => ({
  numbers: undefined,
  bounds: new Map(),
  peers: undefined,
  groups: undefined,
  openEdges: undefined,
  windows: undefined,
  orphans: undefined,
})

/** The memory of one connection. Everything in it can be read again. */
export class Cache {
  readonly sql: Statements
  readonly settings = new Settings()
  #queues = new Map<string, number>()
  #lanes = new Map<number, Lane>()
  #lanesByName = new Map<string, Lane>()
  #recent: Lane | undefined
  /** How far the rates of a queue have been swept. */
  readonly swept = new Map<number, string>()
  /** How far its turns have been. */
  readonly sweptTurns = new Map<number, string>()
  #version: unknown
  #volatile = nothing()

  constructor(sql: Statements) {
    this.sql = sql
  }

  /** Looks whether others have written since it last looked; within a transaction, so that the answer holds. */
  refresh(): 'same' | 'changed' | 'unknown' {
    const version = this.sql.dataVersion.get()![0]
    if (version === this.#version) return 'same'
    const seen = this.#version === undefined ? 'unknown' : 'changed'
    this.#version = version
    this.#volatile = nothing()
    return seen
  }

  /** Forgets everything: a transaction was rolled back, and with it what it had made. */
  forget(): void {
    this.#version = undefined
    this.forgetMade()
    this.#volatile = nothing()
  }

  /** Forgets what a group may have made that was rolled back; numbers count on. */
  forgetMade(): void {
    const { numbers, peers } = this.#volatile
    this.#volatile = { ...nothing(), numbers, peers }
    this.#queues = new Map()
    this.#lanes = new Map()
    this.#lanesByName = new Map()
    this.#recent = undefined
  }

  /** The numbers, to be written to; whoever does says so in the file. */
  get numbers(): Numbers {
    if (this.#volatile.numbers === undefined) {
      const numbers: Numbers = { number: 0, fence: 0, event: 0, bytes: 0, floor: 0, unrecorded: 0, notice: 0 }
      for (const [what, n] of this.sql.numbers.all()) numbers[what as keyof Numbers] = n as number
      this.#volatile.numbers = numbers
    }
    return this.#volatile.numbers
  }

  /** Who watches this file. */
  get peers(): readonly Peer[] {
    this.#volatile.peers ??= this.sql.peers.all().map(([id, until, eventsUntil]): Peer => ({
      id: id as string,
      until: until as number,
      eventsUntil: eventsUntil as number,
    }))
    return this.#volatile.peers
  }

  /** The peers were written to. */
  forgetPeers(): void {
    this.#volatile.peers = undefined
  }

  /** What is known of groups. */
  get groups(): Groups {
    return (this.#volatile.groups ??= new Groups(this.sql))
  }

  /** Does not remember too much. */
  trim(): void {
    this.#volatile.groups?.trim()
  }

  /** What bounds a queue. */
  bounds(queue: string): Bounds {
    let bounds = this.#volatile.bounds.get(queue)
    if (bounds === undefined) {
      const cell = (key: string): string | undefined => this.sql.cell.get(key)?.[1] as string | undefined
      bounds = boundsOf(cell(cellKey.pause(queue)), cell(cellKey.limit(queue)))
      this.#volatile.bounds.set(queue, bounds)
    }
    return bounds
  }

  /** A cell that may bound a queue was written. */
  forgetBounds(queue: string): void {
    this.#volatile.bounds.delete(queue)
  }

  /** Whether any edge is open. */
  get openEdges(): boolean {
    return (this.#volatile.openEdges ??= this.sql.anyOpenEdge.get() !== undefined)
  }

  /** Edges were opened (true), or closed: then it has to be looked up. */
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

  /** Whether any lease has lost its job. */
  get orphans(): boolean {
    return (this.#volatile.orphans ??= this.sql.anyOrphan.get() !== undefined)
  }

  set orphans(known: boolean | undefined) {
    this.#volatile.orphans = known
  }

  /** The number of a queue, if it has ever held a job. */
  queue(name: string): number | undefined {
    let id = this.#queues.get(name)
    if (id === undefined) {
      id = this.sql.queueNamed.get(name)?.[0] as number | undefined
      if (id !== undefined) this.#queues.set(name, id)
    }
    return id
  }

  /** The lane of this number. */
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

  /** The lane of a job's queue, name and version, made if need be. */
  laneOf({ queue: queueName, name, version, group }: Pick<JobRecord, 'queue' | 'name' | 'version' | 'group'>): Lane {
    const shared = group !== undefined
    const recent = this.#recent
    if (
      recent !== undefined &&
      recent.name === name &&
      recent.queueName === queueName &&
      recent.version === version &&
      recent.shared === shared
    ) {
      return recent
    }
    let lane = this.#lanesByName.get(nameOf(queueName, name, version, shared))
    if (lane === undefined) {
      const queue = this.queue(queueName) ?? this.#addQueue(queueName)
      const which = [queue, name, version, Number(shared)]
      const [id] = this.sql.laneNamed.get(...which) ?? this.sql.addLane.get(...which)!
      lane = this.#keep({ id: id as number, queue, queueName, name, version, shared })
    }
    this.#recent = lane
    return lane
  }

  /** The job in a row of `jobById` or `jobBySeq`. */
  found(row: SqlRow, errors = this.#errors): Found {
    const lane = this.lane(row[2] as number)
    return { seq: row[0] as number, lane, job: recordOf(row, lane, this.settings, errors) }
  }

  /** The job of this id, if there is one. */
  byId(id: string): Found | undefined {
    const row = this.sql.jobById.get(id)
    return row && this.found(row)
  }

  /** The job of this number, which is there. */
  bySeq(seq: number): Found {
    return this.found(this.sql.jobBySeq.get(seq)!)
  }

  /**
   * The same as far as changes look at it: without its data, memo and progress, and without what its failed attempts were.
   * A commit may change hundreds of jobs, and must not read all of their payloads for that.
   */
  lightById(id: string): Found | undefined {
    const row = this.sql.lightById.get(id)
    return row && this.found(row, this.#attempts)
  }

  /** The same by its number. */
  lightBySeq(seq: number): Found {
    return this.found(this.sql.lightBySeq.get(seq)!, this.#attempts)
  }

  /** Its header. */
  headerBySeq(seq: number): JobHeader {
    return headerOf(this.found(this.sql.headerBySeq.get(seq)!).job)
  }

  readonly #errors = (seq: number): readonly AttemptError[] => this.sql.failuresOf.all(seq).map(failureOf)

  readonly #attempts = (seq: number): readonly AttemptError[] => this.sql.failuresIn.all(seq).map(failureOf)

  #addQueue(name: string): number {
    const id = this.sql.addQueue.get(name)![0] as number
    this.#queues.set(name, id)
    return id
  }

  #keep(lane: Lane): Lane {
    this.#lanes.set(lane.id, lane)
    this.#lanesByName.set(nameOf(lane.queueName, lane.name, lane.version, lane.shared), lane)
    return lane
  }
}

function nameOf(queue: string, name: string, version: number, shared: boolean): string {
  return `${version}${shared ? '+' : ' '}${queue.length} ${queue}${name}`
}
