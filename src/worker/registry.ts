// worker/registry.ts: a worker's entry in the registry: its heartbeat, and how many other workers are alive.
import { hostname } from 'node:os'
import type { CellEvent } from '../job/change.js'
import { WORKERS, cellKey } from '../store/settings.js'
import type { WorkerCell } from '../store/settings.js'
import type { Connection } from '../store/connection.js'
import { readCells } from '../store/read-pages.js'
import { runSteps } from '../store/maybe-sync.js'
import type { Cell, Verdict } from '../store/store.js'
import { liveWorkers } from '../queue/explain.js'
import type { Settings } from './options.js'
import type { WorkerParts } from './parts.js'
import type { Reporter } from './reporter.js'

/** Removes the entries of workers without a heartbeat for this many of their intervals. */
const EXPIRED_INTERVALS = 60

type State = WorkerCell['state']

/** A worker's entry, apart from its state. */
export type WorkerEntry = Omit<WorkerCell, 'state'>

/** Maintains one worker's entry. If the store fails, the worker only appears dead for a while. */
export class Registration {
  readonly #connection: Connection
  readonly #self: WorkerEntry
  readonly #reporter: Pick<Reporter, 'workerEvent'>
  readonly #running: () => number
  #version = 0
  #state: State = 'running'
  #others = 0
  /** Heartbeats until the registry is read again. */
  #beatsUntilRefresh = 0
  #writing: Promise<void> | undefined
  /** Events to publish with the next write. */
  #unpublished: CellEvent['type'][] = []
  /** The last write failed: it may or may not have been applied. */
  #unsure = false
  /** The worker has stopped: a later heartbeat must not recreate its entry. */
  #stopped = false

  /** `running` returns how many handlers are running now. */
  constructor(
    connection: Connection,
    self: WorkerEntry,
    reporter: Pick<Reporter, 'workerEvent'>,
    running: () => number = () => 0,
  ) {
    this.#connection = connection
    this.#running = running
    this.#self = self
    this.#reporter = reporter
  }

  /** How many other live workers share one of its queues, by the last read. */
  get others(): number {
    return this.#others
  }

  /** Whether the next heartbeat also reads the registry. */
  get readsNext(): boolean {
    return this.#beatsUntilRefresh <= 1
  }

  /**
   * Writes a state and publishes an event, through the batcher of renewals unless another is given. If the write fails,
   * the next heartbeat repeats it.
   */
  announce(state: State | 'stopped', type?: CellEvent['type'], batcher = this.#connection.renewals): Promise<void> {
    if (this.#stopped) return Promise.resolve()
    if (state === 'stopped') this.#stopped = true
    else this.#state = state
    if (type !== undefined) this.#unpublished.push(type)
    return this.#write(this.#stopped ? undefined : this.#state, batcher)
  }

  /**
   * Writes a heartbeat, and sometimes reads the registry. The more workers there are on any queue, the less often each
   * one reads, so that all of them together read each entry about once an interval.
   */
  async heartbeat(): Promise<void> {
    if (this.#stopped) return
    await this.#write(this.#state)
    if (--this.#beatsUntilRefresh <= 0) await this.refresh()
  }

  /**
   * Reads the entries of all workers, counts the live ones and removes expired entries. Returns the entries. Call it
   * after a heartbeat.
   */
  async refresh(): Promise<readonly Cell[]> {
    const { store, runtime } = this.#connection
    const cells = await runSteps(readCells(store, WORKERS))
    // The store's clock, which may differ from this process's: the own entry was written just now.
    const now = cells.find(({ key }) => key === cellKey.worker(this.#self.id))?.at ?? runtime.now()
    const live = liveWorkers(cells, now)
    this.#others = live.filter(
      (worker) => worker.id !== this.#self.id && worker.queues.some((queue) => this.#self.queues.includes(queue)),
    ).length
    this.#beatsUntilRefresh = Math.max(1, live.length) * (0.5 + runtime.random())
    if (store.can.upkeep === 'elsewhere') return cells
    const expired = cells.filter(
      ({ value, at }) => now - at > EXPIRED_INTERVALS * (JSON.parse(value) as WorkerCell).every,
    )
    await Promise.all(
      expired.map(({ key, version }) =>
        this.#connection.renewals.commit([{ kind: 'put', key, value: undefined, version, events: [] }]),
      ),
    )
    return cells
  }

  /** Writes one at a time, because each write needs the version of the one before. The first is sent at once. */
  #write(state: State | undefined, batcher = this.#connection.renewals): Promise<void> {
    const done =
      this.#writing === undefined ? this.#put(state, batcher) : this.#writing.then(() => this.#put(state, batcher))
    const writing: Promise<void> = done.then(
      () => this.#written(writing),
      () => this.#written(writing),
    )
    this.#writing = writing
    return done
  }

  #written(writing: Promise<void>): void {
    if (this.#writing === writing) this.#writing = undefined
  }

  async #put(state: State | undefined, batcher: Connection['renewals']): Promise<void> {
    const key = cellKey.worker(this.#self.id)
    const value = state === undefined ? undefined : JSON.stringify({ ...this.#self, state, running: this.#running() })
    const types = [...this.#unpublished]
    const events = types.flatMap((type) => this.#self.queues.map((queue) => ({ type, queue, worker: this.#self.id })))
    for (;;) {
      let verdict: Verdict
      try {
        verdict = await batcher.commit([{ kind: 'put', key, value, version: this.#version, events }])
      } catch (error) {
        this.#unsure = true
        throw error
      }
      const appliedUnacknowledged = !verdict.ok && this.#unsure && verdict.cell?.value === value
      this.#unsure = false
      if (verdict.ok || appliedUnacknowledged) break
      this.#version = verdict.cell?.version ?? 0 // another worker removed the entry
    }
    this.#version = value === undefined ? 0 : this.#version + 1
    this.#unpublished = this.#unpublished.slice(types.length)
    for (const type of types) this.#reporter.workerEvent(type)
  }
}

/** What a worker is known by from its settings on. */
type Known = Pick<WorkerParts, 'id' | 'queues' | 'connection'> & {
  readonly settings: Pick<Settings, 'names' | 'handles' | 'renewEvery' | 'concurrency'> &
    Partial<Pick<Settings, 'workerName'>>
}

/** The entry of a worker in this process. */
export function entryOf({ id, queues, settings, connection }: Known): WorkerEntry {
  const { runtime } = connection
  const origin = runtime.processes?.self()
  return {
    id,
    ...(settings.workerName !== undefined && { name: settings.workerName }),
    host: hostname(),
    pid: process.pid,
    ...(origin !== undefined && { origin }),
    queues,
    names: settings.names,
    versions: versionsOf(settings),
    slots: settings.concurrency,
    every: settings.renewEvery,
    startedAt: runtime.now(),
  }
}

function versionsOf({ handles }: Pick<Settings, 'handles'>): Record<string, readonly number[]> {
  const known = handles.filter(({ name, versions }) => name !== undefined && versions !== undefined)
  return Object.fromEntries(known.map(({ name, versions }) => [name, versions ?? []]))
}
