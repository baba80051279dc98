// stores/sqlite/lane-cursors.ts: reads the waiting jobs of a lane in claim order, some at a time.
import type { JobRecord, Time } from '../../job/job.js'
import type { LaneCursor } from '../../engine/workspace.js'
import type { Cache } from './cache.js'
import type { SqlRow } from './file/driver.js'
import { START } from './expired-heads.js'
import type { Position } from './expired-heads.js'
import type { Found, Lane } from './rows.js'

/** Jobs of groups at their limits that are skipped one by one before each group is read by itself. */
const MAX_SKIPS = 64

/** Jobs read at once: where some may be skipped, and of one group. */
const READ_SOME = 16
const READ_FEW = 4

/** Opens a lane, with its first `size` jobs read. Returns no cursor if it has no jobs that can be claimed now. */
export function openCursor(cache: Cache, lane: Lane, size: number, now: Time): readonly Cursor[] {
  const { from, looks } = cache.expired.open(lane.id, now)
  const cursor = new Cursor(cache, lane, size, now, undefined, from, START)
  const found = cursor.readMore(size)
  if (!found || looks) passExpired(cache, lane, from, found ? cursor : undefined, now)
  return found ? [cursor] : []
}

/** Has the next claims begin at the first job that has not expired, if a claim passed over others before it. */
function passExpired(cache: Cache, lane: Lane, from: Position, first: Cursor | undefined, now: Time): void {
  const { sql, expired } = cache
  if (first === undefined) {
    const last = sql.laneEnd.get(lane.id)
    if (last !== undefined) expired.passed(lane.id, last as unknown as Position, now)
    return
  }
  const { priority, ord, seq } = first
  const [head] = sql.laneStart.get(lane.id, ...from)!
  // Orders are whole numbers where no two jobs of a lane share one.
  if (head !== seq) expired.passed(lane.id, lane.shared ? [priority, ord, seq - 1] : [priority, ord - 1, Infinity], now)
}

/** How far a claim has read a lane, or one group in it. */
class Cursor implements LaneCursor {
  readonly #cache: Cache
  readonly #lane: Lane
  /** How many jobs to read at a time. */
  readonly #size: number
  /** Jobs that have expired by then are left out. */
  readonly #now: Time
  /** The group of these jobs, if each group is read by itself. */
  readonly #group: string | undefined
  /** Jobs that were read; empty for a group that has not been first yet. */
  #rows: readonly SqlRow[] = []
  #at = 0
  /** There may be more jobs after those that were read; `#last` is the position of the last one read. */
  #more = true
  #last: Position
  /** The position of the first job. */
  #position: Position
  #skipped = 0

  constructor(
    cache: Cache,
    lane: Lane,
    size: number,
    now: Time,
    group: string | undefined,
    last: Position,
    position: Position,
  ) {
    this.#cache = cache
    this.#lane = lane
    this.#size = size
    this.#now = now
    this.#group = group
    this.#last = last
    this.#position = position
  }

  get priority(): number {
    return this.#position[0]
  }

  get ord(): number {
    return this.#position[1]
  }

  get seq(): number {
    return this.#position[2]
  }

  get group(): string | undefined {
    return this.#group ?? (this.#lane.shared ? (this.#first[15] as string) : undefined)
  }

  get limits(): Pick<JobRecord, 'attempts' | 'stalls'> {
    const row = this.#first
    return { attempts: row[6] === null ? Infinity : (row[6] as number), stalls: row[7] as number }
  }

  read(): Found {
    const row = this.#first
    const lane = this.#lane
    const seq = row[0] as number
    return row[12] === 0 ? { seq, lane, job: this.#cache.newRecord(row, lane) } : this.#cache.bySeq(seq)
  }

  next(more: boolean): boolean {
    return this.#advance(more ? this.#size : 0)
  }

  /**
   * After many skips each group is read by itself: groups at their limits are then not read at all, however many jobs
   * they have.
   */
  skip(excluded: (group: string) => boolean): readonly Cursor[] {
    if (this.#group !== undefined) return []
    if (++this.#skipped < MAX_SKIPS) return this.#advance(READ_SOME) ? [this] : []
    const lane = this.#lane
    const position = this.#position
    const now = this.#now
    const heads = this.#cache.sql.groupHeads.all(lane.queue, lane.id, ...position, now) as [
      string,
      number,
      number,
      number,
    ][]
    const cursors: Cursor[] = []
    for (const [group, ...first] of heads) {
      if (!excluded(group)) cursors.push(new Cursor(this.#cache, lane, READ_FEW, now, group, position, first))
    }
    return cursors
  }

  /** The row of the first job. The first jobs of a group are read when one of them has become first. */
  get #first(): SqlRow {
    if (this.#rows.length === 0) this.readMore(READ_FEW)
    return this.#rows[this.#at]!
  }

  /** Moves on to the next job. Reads up to `size` more jobs if needed; none if `size` is 0. */
  #advance(size: number): boolean {
    this.#at++
    if (this.#at < this.#rows.length) {
      this.#position = positionOf(this.#rows[this.#at]!)
      return true
    }
    return this.#more && size > 0 && this.readMore(this.#group === undefined ? size : READ_FEW)
  }

  /** Reads on. Returns whether there was anything. */
  readMore(size: number): boolean {
    const { sql } = this.#cache
    const lane = this.#lane
    const last = this.#last
    this.#rows =
      this.#group !== undefined
        ? sql.groupHead.all(lane.queue, this.#group, lane.id, ...last, size, this.#now)
        : lane.shared
          ? sql.sharedHead.all(lane.id, ...last, size, this.#now)
          : sql.laneHead.all(lane.id, last[0], last[1], size, this.#now)
    this.#at = 0
    this.#more = this.#rows.length === size
    if (this.#rows.length === 0) return false
    this.#position = positionOf(this.#rows[0]!)
    this.#last = positionOf(this.#rows.at(-1)!)
    return true
  }
}

function positionOf(row: SqlRow): Position {
  return [row[2] as number, row[3] as number, row[0] as number]
}
