// worker/registry.ts: a worker's entry in the registry: it says that it lives, and sees who else does.
import type { CellEvent } from '../job/change.js'
import { WORKERS, cellKey } from '../store/settings.js'
import type { WorkerCell } from '../store/settings.js'
import type { Connection } from '../store/connection.js'
import { readCells } from '../store/read-pages.js'
import { stepwise } from '../store/maybe-sync.js'
import type { Cell, Verdict } from '../store/store.js'
import { liveWorkers } from '../queue/explain.js'

/** Entries of workers not seen for this many of their intervals are cleared away. */
const FORGOTTEN = 60

type State = WorkerCell['state']

/** Keeps one worker's entry. A store that fails only makes it look dead for a while. */
export class Registration {
  readonly #connection: Connection
  readonly #self: Omit<WorkerCell, 'state'>
  readonly #told: (type: CellEvent['type']) => void
  #version = 0
  #state: State = 'running'
  #others = 0
  /** Signs of life until the next look around. */
  #untilLook = 0
  #writing: Promise<void> | undefined
  /** What is to be announced with the next write that lands. */
  #untold: CellEvent['type'][] = []
  /** The last write got no answer. */
  #unsure = false
  /** It has stopped: whoever comes later must not bring it back. */
  #stopped = false

  /** `told` hears of each announcement once it is durable. */
  constructor(connection: Connection, self: Omit<WorkerCell, 'state'>, told: (type: CellEvent['type']) => void) {
    this.#connection = connection
    this.#self = self
    this.#told = told
  }

  /** How many other live workers share one of its queues, as far as is known. */
  get others(): number {
    return this.#others
  }

  /** Announces a state, by the lane of signs of life unless another is given. What cannot be written now goes with the next sign of life. */
  announce(state: State | 'stopped', type?: CellEvent['type'], lane = this.#connection.renewals): Promise<void> {
    if (this.#stopped) return Promise.resolve()
    if (state === 'stopped') this.#stopped = true
    else this.#state = state
    if (type !== undefined) this.#untold.push(type)
    return this.#write(this.#stopped ? undefined : this.#state, lane)
  }

  /**
   * A sign of life, and now and then a look around: the more workers there are, the less often, so that all of them together
   * read each entry about once an interval.
   */
  async beat(): Promise<void> {
    if (this.#stopped) return
    await this.#write(this.#state)
    if (--this.#untilLook <= 0) await this.look()
  }

  /** Sees who else is there, or was; answers their entries. Called after a sign of life. */
  async look(): Promise<readonly Cell[]> {
    const { store, runtime } = this.#connection
    const cells = await stepwise(readCells(store, WORKERS))
    // By the store's clock, which this process's may differ from: its own entry was written just now.
    const now = cells.find(({ key }) => key === cellKey.worker(this.#self.id))?.at ?? runtime.now()
    this.#others = liveWorkers(cells, now).filter(
      (worker) => worker.id !== this.#self.id && worker.queues.some((queue) => this.#self.queues.includes(queue)),
    ).length
    this.#untilLook = (1 + this.#others) * (0.5 + runtime.random())
    const forgotten = cells.filter(({ value, at }) => now - at > FORGOTTEN * (JSON.parse(value) as WorkerCell).every)
    await Promise.all(
      forgotten.map(({ key, version }) =>
        this.#connection.renewals.commit([{ kind: 'put', key, value: undefined, version, events: [] }]),
      ),
    )
    return cells
  }

  /** One write at a time, so that each knows the version it follows; the first leaves at once. */
  #write(state: State | undefined, lane = this.#connection.renewals): Promise<void> {
    const done = this.#writing === undefined ? this.#put(state, lane) : this.#writing.then(() => this.#put(state, lane))
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

  async #put(state: State | undefined, lane: Connection['renewals']): Promise<void> {
    const key = cellKey.worker(this.#self.id)
    const value = state === undefined ? undefined : JSON.stringify({ ...this.#self, state })
    const types = [...this.#untold]
    const events = types.flatMap((type) => this.#self.queues.map((queue) => ({ type, queue, worker: this.#self.id })))
    for (;;) {
      let verdict: Verdict
      try {
        verdict = await lane.commit([{ kind: 'put', key, value, version: this.#version, events }])
      } catch (error) {
        this.#unsure = true
        throw error
      }
      const landedUnheard = !verdict.ok && this.#unsure && verdict.cell?.value === value
      this.#unsure = false
      if (verdict.ok || landedUnheard) break
      this.#version = verdict.cell?.version ?? 0 // cleared away by others
    }
    this.#version = value === undefined ? 0 : this.#version + 1
    this.#untold = this.#untold.slice(types.length)
    for (const type of types) this.#told(type)
  }
}
