// stores/postgres/engine/workspace.ts: the working set of a batch as the engine sees it. It collects what `commit` writes.
import type { ChainState, Orders, Reopened } from '../../../job/apply.js'
import type { Move, Note } from '../../../job/change.js'
import { isFinished, isLeased, isClaimable } from '../../../job/job.js'
import type { Edge, JobRecord, Time } from '../../../job/job.js'
import { boundsOf, isBacklog, turn } from '../../../job/limits.js'
import type { Bounds } from '../../../job/limits.js'
import { copyOf } from '../../../job/record.js'
import type { Draft } from '../../../job/record.js'
import { boundedQueue } from '../../../engine/put.js'
import { Busy } from '../../../engine/workspace.js'
import type { Workspace } from '../../../engine/workspace.js'
import { cellKey } from '../../../store/settings.js'
import type { Cell } from '../../../store/store.js'
import type { Lifetime } from '../../../store/tally.js'
import type { SettingsCache } from '../../job-settings.js'
import type { LaneFinder } from '../lanes.js'
import { BROKEN_EDGES, recordOf, seqOf } from '../rows.js'
import type { Lane, RecordRow } from '../rows.js'
import { WorkingEdges } from './working-edges.js'
import { Backlogs, keyOf, lastTurn } from './working-groups.js'
import { Journal, listIn, outcomeOf, parsedError, WorkingRow } from './working-rows.js'
import type { ChainMember, Payload, WorkingEdge } from './working-rows.js'
import type { FindLeased, WorkingSet } from './working-set.js'

interface Key {
  readonly job: string
  readonly until: Time | undefined
}

/** What a workspace needs to know of the store. */
export interface WorkspaceContext {
  readonly settings: SettingsCache
  /** The lane of a known id. */
  lane(id: number): Lane
  readonly lanes: LaneFinder
  /** The jobs that the request names as leased. */
  readonly leased: FindLeased
}

/** Order numbers in a block: the increment of the sequence that they come from. */
const BLOCK = 1_024

const NO_BOUNDS = boundsOf(undefined, undefined)

/** The workspace over a working set. */
export class PostgresWorkspace implements Workspace {
  readonly mayBeBusy = true
  readonly orders: Orders = {
    next: (lifo) => {
      const n = this.#nextNumber()
      return lifo ? -1 - n : n
    },
    turn: (queue, group, priority) => {
      const last = lastTurn(this.#set.extra.turns, { queue, group, priority }, this.#rows, [
        ...this.inserts,
        ...this.loaded,
      ])
      return turn(last.reached, last.last, this.bounds(queue).weight(group))
    },
  }
  readonly now: Time
  readonly recording: boolean
  /** Jobs that were loaded, and jobs that the batch inserted; removed ones are marked. */
  readonly loaded: WorkingRow[] = []
  readonly inserts: WorkingRow[] = []
  readonly edges: WorkingEdges
  readonly keysTaken = new Map<string, Key>()
  readonly keysFreed = new Map<string, string>()
  readonly orphansAdded = new Map<
    string,
    readonly [id: string, fence: number, row: WorkingRow, until: Time, worker: string | undefined]
  >()
  readonly orphansEnded = new Map<string, readonly [id: string, fence: number]>()
  readonly cellsPut = new Map<string, Cell | undefined>()
  readonly lifetime = new Map<string, readonly [queue: number, what: keyof Lifetime, n: number]>()
  /** Records that refusals name and that were not loaded whole: they are read after the commit. */
  readonly unread = new Set<JobRecord>()
  /** The highest fence of a job that the batch removed; a group that is refused does not lower it again. */
  removedFence = 0
  readonly #journal = new Journal()
  readonly #set: WorkingSet
  readonly #context: WorkspaceContext
  readonly #busy: ReadonlySet<string>
  readonly #rows = new Map<string, WorkingRow>()
  readonly #members = new Map<string, ChainMember[]>()
  readonly #insertedInto = new Map<string, WorkingRow[]>()
  readonly #reachable: ReadonlyMap<string, { readonly chainId: string; readonly name: string }>
  readonly #taken: ReadonlyMap<string, RecordRow | null>
  readonly #keys = new Map<string, Key | undefined>()
  readonly #cells = new Map<string, Cell | undefined>()
  readonly #boundTexts = new Map<string, { pause: string | undefined; limit: string | undefined }>()
  readonly #bounds = new Map<string, Bounds>()
  readonly #backlogs: Backlogs
  readonly #orphans: ReadonlyMap<string, string>
  #numbers = 0

  constructor(set: WorkingSet, context: WorkspaceContext) {
    const { fixed, rows, now } = set
    this.#set = set
    this.#context = context
    this.now = now
    this.recording = fixed.recording
    this.#busy = new Set(fixed.busy)
    for (const row of rows.rows) this.#addLoaded(row)
    for (const row of rows.dependents) this.#addLoaded(row)
    for (const [id, fence] of rows.leased) this.#addHeld(context.leased(id, fence)!)
    for (const job of set.held ?? []) this.#addHeld(job)
    this.edges = new WorkingEdges(fixed, this.#rows, this.#journal)
    for (const [chain, id, index, seq, state, result, error] of fixed.ends) {
      const member = { id, index, seq, state, result: result ?? undefined, error: parsedError(error) }
      listIn(this.#members, chain).push(member)
    }
    this.#reachable = new Map(
      fixed.reachable.map(([id, chainId, lane]) => [id, { chainId, name: context.lane(lane).name }]),
    )
    this.#taken = new Map(fixed.taken)
    for (const [key, job, until] of fixed.keys) this.#keys.set(key, { job, until: until ?? undefined })
    for (const [key, value, version, at] of fixed.cells) this.#cells.set(key, { key, value, version, at })
    for (const [queue, pause, limit] of fixed.bounds) {
      this.#boundTexts.set(queue, { pause: pause ?? undefined, limit: limit ?? undefined })
    }
    this.#backlogs = new Backlogs(fixed, this.#journal)
    this.#orphans = new Map(fixed.orphans.map(([id, fence, lane]) => [keyOf(id, fence), context.lane(lane).queue]))
  }

  #addLoaded(row: RecordRow): void {
    const lane = this.#context.lane(row[1] as number)
    const job = recordOf(row, this.#context.settings, lane)
    if (this.#rows.has(job.id)) return
    const found = new WorkingRow(job, seqOf(row), lane.id, row[2] as number, job)
    found.brokenEdges = row[BROKEN_EDGES] as number
    this.#rows.set(job.id, found)
    this.loaded.push(found)
  }

  #addHeld(job: JobRecord): void {
    if (this.#rows.has(job.id)) return
    const { lane, queue } = this.#context.lanes(job)!
    // The server has found that the lease is not over, however often it was renewed since the claim.
    const leased = job.leaseUntil! > this.now ? job : { ...copyOf(job), leaseUntil: this.now + 1 }
    const found = new WorkingRow(leased, 0, lane, queue, leased)
    this.#rows.set(job.id, found)
    this.loaded.push(found)
  }

  get highestFence(): number {
    return Math.max(this.#set.extra.fence, this.removedFence)
  }

  // Groups of changes.

  beginGroup(): void {
    this.#journal.begin()
  }

  keepGroup(): void {
    this.#journal.keep()
  }

  rollbackGroup(): void {
    this.#journal.rollback()
  }

  // Jobs.

  find(id: string): WorkingRow | undefined {
    const row = this.#rows.get(id)
    if (row === undefined || row.removed) return undefined
    if (row.loaded !== undefined) this.#checkBusy('row', id)
    return row
  }

  record(id: string): JobRecord | undefined {
    const row = this.#rows.get(id)
    if (row?.removed) return undefined
    if (row?.loaded === undefined && row !== undefined) return copyOf(row.job)
    this.#checkBusy('id', id)
    const whole = this.#taken.get(id)
    if (whole && row?.changed !== true) return recordOf(whole, this.#context.settings)
    if (whole === undefined && row === undefined) return undefined
    const known = row === undefined ? whole : undefined
    // Its payload is not known here, or the batch has changed it.
    const stub = row === undefined ? stubOf(id) : copyOf(row.job)
    if (!known) this.unread.add(stub)
    return stub
  }

  inserted(job: JobRecord): JobRecord {
    const row = this.#rows.get(job.id)
    return copyOf(row === undefined || row.removed || row.loaded !== undefined ? job : row.job)
  }

  insert(job: Draft): WorkingRow | undefined {
    const { id } = job
    const existing = this.#rows.get(id)
    if (existing === undefined || existing.loaded !== undefined) this.#checkBusy('id', id)
    if (existing === undefined ? this.#taken.has(id) : !existing.removed) return undefined
    const lane = this.#context.lanes(job)
    if (lane === undefined) throw new Busy()
    const seq = job.group === undefined ? numberOf(job.ord) : this.#nextNumber()
    const row = new WorkingRow(job, seq, lane.lane, lane.queue, undefined)
    const chain = listIn(this.#insertedInto, job.chainId)
    this.#rows.set(id, row)
    this.inserts.push(row)
    chain.push(row)
    this.#journal.undo(() => {
      chain.pop()
      this.inserts.pop()
      if (existing === undefined) this.#rows.delete(id)
      else this.#rows.set(id, existing)
    })
    this.#backlogs.count(job, undefined, job.state)
    return row
  }

  write(row: WorkingRow, after: Draft, set?: Move['set']): void {
    const before = row.job
    this.#journal.save(row)
    row.job = after
    row.changed = true
    this.#backlogs.count(after, before.state, after.state)
    if (row.loaded === undefined) return
    const payload: Payload = { ...row.payload }
    if (isFinished(before.state) && before.state !== after.state) payload.result = null
    if (set !== undefined) {
      if (set.data !== undefined) payload.data = set.data
      if (set.memo !== undefined) payload.memo = set.memo
      if (set.result !== undefined) payload.result = set.result
      if (set.error !== undefined) payload.error = set.error === null ? null : JSON.stringify(set.error)
      if (set.error) {
        payload.failures = [...(payload.failures ?? []), JSON.stringify(after.errors.at(-1))]
      }
    }
    row.payload = payload
  }

  remove(row: WorkingRow): void {
    const { job } = row
    this.#journal.save(row)
    row.removed = true
    this.removedFence = Math.max(this.removedFence, job.fence)
    this.#backlogs.count(job, job.state, undefined)
  }

  note(row: WorkingRow, { data, progress, memo, steps, logs }: Note): void {
    this.#journal.save(row)
    if (row.loaded === undefined) {
      const job = copyOf(row.job)
      if (data !== undefined) job.data = data ?? undefined
      if (progress !== undefined) job.progress = progress
      if (memo !== undefined) job.memo = memo
      row.job = job
    } else {
      row.payload = {
        ...row.payload,
        ...(data !== undefined && { data }),
        ...(progress !== undefined && { progress }),
        ...(memo !== undefined && { memo }),
      }
    }
    if (steps !== undefined) {
      const ended = steps.map(({ name, result, ran }) => [name, [result ?? null, ran ?? null]] as const)
      row.steps = new Map([...row.steps, ...ended])
    }
    if (logs !== undefined && logs.length > 0) {
      const { attempt } = row.job
      row.logs = [...row.logs, ...logs.map((line) => [attempt, line] as const)]
    }
  }

  renew(id: string, fence: number, until: Time, started: boolean): boolean {
    const row = this.#rows.get(id)
    if (row === undefined || row.removed || !isLeased(row.job.state) || row.job.fence !== fence) return false
    this.#checkBusy('row', id)
    this.#journal.save(row)
    const job = copyOf(row.job)
    job.leaseUntil = job.dueAt = until
    if (started) job.ahead = false
    row.job = job
    row.renewed = true
    return true
  }

  count(row: WorkingRow, what: keyof Lifetime): void {
    const key = keyOf(row.queue, what)
    this.#journal.put(this.lifetime, key, [row.queue, what, (this.lifetime.get(key)?.[2] ?? 0) + 1] as const)
  }

  // Chains and edges.

  chainOf(id: string): Pick<JobRecord, 'chainId' | 'name'> | undefined {
    const row = this.#rows.get(id)
    return row === undefined ? this.#reachable.get(id) : row.removed ? undefined : row.job
  }

  chainState(chain: string): ChainState {
    this.#checkBusy('chain', chain)
    let last: (ChainMember & { readonly row?: WorkingRow }) | undefined
    const isLater = ({ index, seq }: ChainMember): boolean =>
      last === undefined || index > last.index || (index === last.index && seq > last.seq)
    for (const member of this.#members.get(chain) ?? []) {
      const row = this.#rows.get(member.id)
      const loaded = row?.loaded === undefined ? undefined : row
      if (loaded?.removed || (row !== undefined && loaded === undefined)) continue
      if (!isFinished(loaded?.job.state ?? member.state)) return undefined
      if (isLater(member)) last = { ...member, ...(loaded !== undefined && outcomeOf(loaded, member)) }
    }
    for (const row of this.#insertedInto.get(chain) ?? []) {
      if (row.removed) continue
      const { id, chainIndex: index, state, result, error } = row.job
      if (!isFinished(state)) return undefined
      const member = { id, index, seq: row.seq, state, result, error }
      if (isLater(member)) last = member
    }
    if (last === undefined) return 'gone'
    const { state, result, error } = last
    return isFinished(state) ? { state, result, error } : undefined
  }

  chainsOf({ job }: WorkingRow): readonly string[] {
    return this.edges.of(job.id).map(({ chain }) => chain)
  }

  failedEdges({ job }: WorkingRow): readonly WorkingEdge[] {
    return this.edges.of(job.id)
  }

  edgesOn(chain: string): readonly WorkingEdge[] {
    const edges = this.edges.on(chain)
    // Whoever holds a dependent may be about to change these edges, too.
    if (this.#busy.size > 0) {
      for (const { row, dependent } of edges) if (row!.loaded !== undefined) this.#checkBusy('row', dependent)
    }
    return edges
  }

  dependentOf({ row }: WorkingEdge): WorkingRow {
    return row!
  }

  addEdges(row: WorkingRow, edges: readonly Edge[], existing: number): void {
    this.edges.append(row, edges, existing)
  }

  setEdge(edge: WorkingEdge, to: Pick<Edge, 'state' | 'result' | 'error'>): void {
    this.edges.set(edge, to)
  }

  reopenEdges(_row: WorkingRow, changed: Reopened<WorkingEdge>['changed']): void {
    for (const { edge, to } of changed) this.edges.set(edge, to)
  }

  closeBroken(row: WorkingRow): number {
    return this.edges.closeBroken(row)
  }

  anyBroken(row: WorkingRow): boolean {
    return row.brokenEdges > 0
  }

  countDown(edge: WorkingEdge): void {
    const row = this.dependentOf(edge)
    const after = copyOf(row.job)
    after.pending--
    this.write(row, after)
  }

  // Dedup keys.

  keyHolder(key: string): string | undefined {
    this.#checkBusy('key', key)
    const holder = this.#keys.get(key)
    return holder === undefined || (holder.until !== undefined && holder.until <= this.now) ? undefined : holder.job
  }

  takeKey(key: string, id: string, until: Time | undefined): void {
    this.#journal.put(this.#keys, key, { job: id, until })
    this.#journal.put(this.keysTaken, key, { job: id, until })
  }

  freeKey(key: string, id: string): void {
    const holder = this.#keys.get(key)
    if (holder?.job !== id || holder.until !== undefined) return
    this.#checkBusy('key', key)
    this.#journal.put(this.#keys, key, undefined)
    const taken = this.keysTaken.get(key)
    if (taken !== undefined) {
      this.keysTaken.delete(key)
      this.#journal.undo(() => void this.keysTaken.set(key, taken))
    }
    this.#journal.put(this.keysFreed, keyOf(key, id), key)
  }

  /** The server removes expired keys and leases with the commit. */
  sweepKeys(): void {}

  // Revoked leases.

  addOrphan(row: WorkingRow, { fence, worker }: Pick<JobRecord, 'fence' | 'worker'>, until: Time): void {
    this.#journal.put(this.orphansAdded, keyOf(row.job.id, fence), [row.job.id, fence, row, until, worker] as const)
  }

  endOrphan(id: string, fence: number): string | undefined {
    const key = keyOf(id, fence)
    const added = this.orphansAdded.get(key)
    if (added !== undefined) {
      this.orphansAdded.delete(key)
      this.#journal.undo(() => void this.orphansAdded.set(key, added))
    }
    const queue = added === undefined ? this.#orphans.get(key) : added[2].job.queue
    if (queue === undefined || (added === undefined && this.orphansEnded.has(key))) return undefined
    this.#journal.put(this.orphansEnded, key, [id, fence] as const)
    return queue
  }

  expireOrphans(): readonly string[] {
    return []
  }

  // Cells, bounds and backlogs.

  cell(key: string): Cell | undefined {
    this.#checkBusy('cell', key)
    return this.#cells.get(key)
  }

  putCell(key: string, cell: Cell | undefined): void {
    this.#journal.put(this.#cells, key, cell)
    this.#journal.put(this.cellsPut, key, cell)
    const queue = boundedQueue(key)
    if (queue === undefined) return
    const before = this.#boundTexts.get(queue) ?? { pause: undefined, limit: undefined }
    const after = { ...before, [key === cellKey.pause(queue) ? 'pause' : 'limit']: cell?.value }
    this.#journal.put(this.#boundTexts, queue, after)
    this.#bounds.delete(queue)
    this.#journal.undo(() => void this.#bounds.delete(queue))
  }

  bounds(queue: string): Bounds {
    const texts = this.#boundTexts.get(queue)
    if (texts === undefined) return NO_BOUNDS
    let bounds = this.#bounds.get(queue)
    if (bounds === undefined) this.#bounds.set(queue, (bounds = boundsOf(texts.pause, texts.limit)))
    return bounds
  }

  backlog(queue: string): number {
    this.#checkBusy('backlog', queue)
    return this.#backlogs.of(queue)
  }

  groupBacklog(queue: string, group: string): number {
    this.#checkBusy('backlog', keyOf(queue, group))
    return this.#backlogs.of(queue, group)
  }

  oldestOfGroup(queue: string, group: string): JobRecord | undefined {
    const oldest = this.#backlogs.oldest(queue, group, this.#rows)
    if (oldest !== undefined) {
      const stub = copyOf(this.#rows.get(oldest)?.job ?? stubOf(oldest))
      this.unread.add(stub)
      return stub
    }
    const added = this.inserts.find(
      ({ job, removed }) => !removed && job.queue === queue && job.group === group && isBacklog(job.state),
    )
    return added && copyOf(added.job)
  }

  hasWaiting(queue: string): boolean {
    if (this.#set.extra.waiting.includes(queue)) return true
    const waits = ({ job, removed }: WorkingRow): boolean =>
      !removed && job.queue === queue && job.kind === 'job' && isClaimable(job.state)
    return this.inserts.some(waits) || this.loaded.some(waits)
  }

  // Within the workspace.

  #checkBusy(what: 'row' | 'chain' | 'id' | 'key' | 'cell' | 'backlog', which: string): void {
    if (this.#busy.size > 0 && this.#busy.has(`${what} ${which}`)) throw new Busy()
  }

  #nextNumber(): number {
    const n = this.#numbers++
    return this.#set.extra.orders[Math.floor(n / BLOCK)]! + (n % BLOCK)
  }
}

/** A record of which only the id is known. */
function stubOf(id: string): Draft {
  return { id } as Draft
}

/** The insertion number of a new job without a group, from which its order was derived. */
function numberOf(ord: number): number {
  return ord < 0 ? -1 - ord : ord
}
