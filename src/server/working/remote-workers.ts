// server/working/remote-workers.ts: the workers that claim over HTTP: their entries in the registry, and what operators ask
// of them.
import { setMaxListeners } from 'node:events'
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { describeError } from '../../job/errors/failure.js'
import type { Logger } from '../../queue/events/events.js'
import type { Connection } from '../../store/connection.js'
import { runSteps } from '../../store/maybe-sync.js'
import { readCells } from '../../store/read-pages.js'
import { STEERING, WORKERS, cellKey, updateCell } from '../../store/settings.js'
import type { CellSession, SteeringCell, WorkerCell } from '../../store/settings.js'
import { Registration } from '../../worker/registry.js'
import { inScope } from '../principal.js'
import type { Principal } from '../principal.js'

/** What an operator asks of a worker; `running`: nothing. */
export type Steering = SteeringCell['state']

/** What a worker says of itself. */
export interface AboutWorker {
  readonly queues: readonly string[]
  /** The names that it handles; undefined: all. */
  readonly names: readonly string[] | undefined
  readonly versions: Readonly<Record<string, readonly number[]>>
  readonly host?: string
  readonly pid?: number
  /** The lease of its claims. */
  readonly lease?: Millis
}

/** How often a live worker writes its entry at least. It does so with its calls: claims wait 25 s at most. */
const SEEN_EVERY: Millis = 30_000
/** The most workers that one server keeps in mind; the one that was silent for longest is forgotten first. */
const MAX_WORKERS = 10_000

interface Known {
  about: AboutWorker
  registration: Registration
  seenAt: Millis
  /** As its entry says. */
  state: WorkerCell['state']
  steering: Steering
  /** It has had an answer with what is asked of it now. */
  wasAsked: boolean
  /** Aborts when something else is asked of it. */
  changed: AbortController
}

/** The id under which jobs name a worker: it begins with the name of its token, so that tokens cannot pose as others. */
export function workerIdOf({ name }: Principal, given: string): string {
  return given.startsWith(`${name}/`) ? given : `${name}/${given}`
}

/** Whether a worker is one of the caller's. */
export function isOwnWorker({ name }: Principal, worker: string | undefined): boolean {
  return worker?.startsWith(`${name}/`) === true
}

/** The workers that claim from one server. */
export class RemoteWorkers {
  readonly #connection: Connection
  readonly #logger: Logger
  readonly #session: CellSession
  /** The one that was silent for longest first. */
  readonly #known = new Map<string, Known>()
  readonly #reading = new Map<string, Promise<Known>>()

  constructor(connection: Connection, logger: Logger) {
    this.#connection = connection
    this.#logger = logger
    const { store, renewals } = connection
    this.#session = { details: (query) => store.details(query), commit: (group) => renewals.commit(group) }
  }

  /** A worker has called: keeps its entry fresh. Returns what is asked of it. */
  async claims(id: string, about: AboutWorker): Promise<Steering> {
    const known = await this.#find(id, about)
    if (differs(known.about, about)) this.#register(id, known, { ...known.about, ...about })
    this.#seen(id, known)
    return known.steering
  }

  /** A call about a job that a worker holds. */
  called(id: string): void {
    const known = this.#known.get(id)
    if (known !== undefined) this.#seen(id, known)
  }

  /** Whether it has not had an answer yet with what is asked of it now; from now on it has. */
  tell(id: string): boolean {
    const known = this.#known.get(id)
    if (known === undefined || known.wasAsked) return false
    known.wasAsked = true
    known.state = known.steering === 'running' ? 'running' : known.steering === 'pausing' ? 'paused' : 'stopping'
    const type = known.state === 'stopping' ? 'worker-stopping' : undefined
    this.#report(known.registration.announce(known.state, type))
    return true
  }

  /** What is asked of a worker. */
  steeringOf(id: string): Steering {
    return this.#known.get(id)?.steering ?? 'running'
  }

  /** Aborts when something else is asked of a worker. */
  changed(id: string): AbortSignal | undefined {
    return this.#known.get(id)?.changed.signal
  }

  /** The lease of a worker's last claim, also if another server or process had it. */
  async leaseOf(id: string): Promise<Millis | undefined> {
    const known = this.#known.get(id)
    if (known?.about.lease !== undefined) return known.about.lease
    const { cells } = await this.#connection.store.details({ cells: [cellKey.worker(id)] })
    return cells[0] === undefined ? undefined : (JSON.parse(cells[0].value) as WorkerCell).lease
  }

  /** Writes the entry of a worker as it describes itself; resolves when it is durable. */
  async put(id: string, about: AboutWorker, state: WorkerCell['state']): Promise<Steering> {
    const known = await this.#find(id, about)
    if (differs(known.about, about)) known.registration = this.#registration(id, (known.about = about))
    known.seenAt = this.#connection.runtime.elapsed()
    known.state = state
    await known.registration.announce(state)
    return known.steering
  }

  /** A worker has stopped: removes its entry, and what was asked of it. */
  async delete(id: string): Promise<void> {
    const about = { queues: [], names: undefined, versions: {} }
    const registration = this.#known.get(id)?.registration ?? this.#registration(id, about)
    this.#known.delete(id)
    await registration.announce('stopped', 'worker-stopped')
    const { cells } = await this.#session.details({ cells: [cellKey.steering(id)] })
    for (const { key, version } of cells) {
      await this.#session.commit([{ kind: 'put', key, value: undefined, version, events: [] }])
    }
  }

  /** Asks a worker to pause, to stop, or to go on. Its next answer says so. */
  async steer(id: string, state: Steering, by: Principal): Promise<void> {
    const { cells } = await this.#session.details({ cells: [cellKey.worker(id)] })
    const entry = cells[0] === undefined ? undefined : (JSON.parse(cells[0].value) as WorkerCell)
    if (entry === undefined || !entry.queues.every((queue) => inScope(by, queue))) throw workerNotFound(id)
    if (entry.remote !== true) {
      throw new MillraceError(
        'INVALID_STATE',
        `Worker ${id} runs in a process of its own and does not claim over HTTP: worker.pause() and worker.close() steer it there.`,
        { details: { id } },
      )
    }
    const value = JSON.stringify({ state, by: by.name } satisfies SteeringCell)
    await runSteps(updateCell(this.#session, cellKey.steering(id), () => ({ value })))
    const known = this.#known.get(id)
    if (known !== undefined) this.#steered(known, state)
  }

  /** Removes the entries of workers that are gone, and what was asked of them. */
  async sweep(): Promise<void> {
    const [first] = this.#known.values()
    await first?.registration.refresh() // a worker among them reads all entries, as every worker does now and then
    const steered = await runSteps(readCells(this.#session, STEERING))
    if (steered.length === 0) return
    const entries = await runSteps(readCells(this.#session, WORKERS))
    const alive = new Set(entries.map(({ key }) => key.slice(WORKERS.length)))
    for (const { key, version } of steered) {
      if (alive.has(key.slice(STEERING.length))) continue
      await this.#session.commit([{ kind: 'put', key, value: undefined, version, events: [] }])
    }
  }

  /** The worker, whose entry is written ahead of its first claim. */
  #find(id: string, about: AboutWorker): Known | Promise<Known> {
    const known = this.#known.get(id)
    if (known !== undefined) return known
    let reading = this.#reading.get(id)
    if (reading === undefined) {
      reading = this.#read(id, about).finally(() => this.#reading.delete(id))
      this.#reading.set(id, reading)
    }
    return reading
  }

  async #read(id: string, about: AboutWorker): Promise<Known> {
    await this.#connection.ready()
    const { cells } = await this.#session.details({ cells: [cellKey.worker(id), cellKey.steering(id)] })
    const entry = cells.find(({ key }) => key === cellKey.worker(id))
    const known: Known = {
      about,
      registration: this.#registration(id, about),
      seenAt: this.#connection.runtime.elapsed(),
      state: 'running',
      steering: steeringIn(cells.find(({ key }) => key === cellKey.steering(id))?.value),
      wasAsked: false,
      changed: newSignal(),
    }
    known.wasAsked = known.steering === 'running'
    this.#known.set(id, known)
    if (this.#known.size > MAX_WORKERS) this.#known.delete(this.#known.keys().next().value!)
    // A worker that another server has registered, or this one before it was restarted, does not start again.
    const type = entry === undefined ? 'worker-started' : undefined
    this.#report(known.registration.announce('running', type, this.#connection.claims))
    return known
  }

  #register(id: string, known: Known, about: AboutWorker): void {
    known.about = about
    known.registration = this.#registration(id, about)
    this.#report(known.registration.announce(known.state))
  }

  #registration(id: string, { queues, names, versions, host, pid, lease }: AboutWorker): Registration {
    const entry = {
      id,
      host: host ?? 'remote',
      pid: pid ?? 0,
      queues,
      names,
      versions,
      slots: 0,
      every: SEEN_EVERY,
      startedAt: this.#connection.runtime.now(),
      remote: true,
      ...(lease !== undefined && { lease }),
    } as const
    return new Registration(this.#connection, entry, { workerEvent: () => {} })
  }

  /** Writes the entry if that was long ago, and reads what was asked of it through other servers. */
  #seen(id: string, known: Known): void {
    this.#known.delete(id)
    this.#known.set(id, known)
    const now = this.#connection.runtime.elapsed()
    if (now - known.seenAt < SEEN_EVERY / 2) return
    known.seenAt = now
    const { state } = known
    this.#report(known.registration.announce(state))
    const looked = this.#session.details({ cells: [cellKey.steering(id)] }).then(({ cells }) => {
      this.#steered(known, steeringIn(cells[0]?.value))
    })
    this.#report(looked)
  }

  #steered(known: Known, state: Steering): void {
    if (known.steering === state) return
    known.steering = state
    known.wasAsked = false
    const { changed } = known
    known.changed = newSignal()
    changed.abort()
  }

  #report(write: Promise<void>): void {
    write.catch((error: unknown) => {
      const { message } = describeError(error)
      this.#logger.warn({ error }, `The entry of a worker was not written: ${message} Its next call repeats it.`)
    })
  }
}

/** Whether a worker describes itself otherwise than before. What it leaves out stays as it is. */
function differs(before: AboutWorker, now: AboutWorker): boolean {
  return Object.entries(now).some(
    ([key, value]) => value !== undefined && JSON.stringify(value) !== JSON.stringify(before[key as keyof AboutWorker]),
  )
}

/** A worker may have any number of claims that wait. */
function newSignal(): AbortController {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal)
  return controller
}

function steeringIn(value: string | undefined): Steering {
  return value === undefined ? 'running' : (JSON.parse(value) as SteeringCell).state
}

function workerNotFound(id: string): MillraceError {
  return new MillraceError('WORKER_NOT_FOUND', `No worker ${id} claims over HTTP.`, { details: { id } })
}
