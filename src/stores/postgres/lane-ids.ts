// stores/postgres/lane-ids.ts: the numbers of lanes, which never change, so that a process asks for each once. A failover may lose
// some; commits say so, and all are asked for again.
import type { Millis } from '../../job/job.js'
import type { Tx } from '../../store/store.js'
import { isSameLane } from './encode.js'
import type { LaneFinder, LaneNumbers, Named } from './encode.js'
import type { Lane } from './rows.js'

/** The last says that it is for jobs with a group. */
type Words = readonly [queue: string, name: string, version: number, shared: boolean]

/** What the lanes ask the database. */
export interface LaneSource {
  /** The numbers of lanes, made if need be; none for one that somebody else is making. */
  make(lanes: readonly Words[]): Promise<readonly (readonly [number, number] | null)[]>
  /** The numbers of lanes that are there, as a transaction sees them. */
  look(lanes: readonly Words[], tx: Tx): Promise<readonly (readonly [number, number] | null)[]>
  /** Waits. */
  pause(delay: Millis): Promise<void>
  /** The names of lanes. */
  names(ids: readonly number[]): Promise<readonly (readonly [number, string, string, number])[]>
}

/** How often to ask for a lane that others may be making in the same moment; more often where nobody tries again later. */
const TRIES = 2
const TRIES_WITHIN = 8

/** All lanes that this process knows. */
export class LaneIds {
  readonly #source: LaneSource
  readonly #numbers = new Map<string, LaneNumbers>()
  readonly #lanes = new Map<number, Lane>()
  /** The lane found last: jobs are mostly added many of a kind. */
  #recent: (Named & { readonly numbers: LaneNumbers }) | undefined
  /** The last making that was begun: this process does not stand in its own way. */
  #making: Promise<void> = Promise.resolve()
  /** The queues that this process has to do with. */
  readonly queues = new Set<string>()

  constructor(source: LaneSource) {
    this.#source = source
  }

  /** Sees to it that these are known, if that can be without waiting for a transaction; nothing is asked where they are. */
  async know(jobs: readonly Named[]): Promise<void> {
    for (let tries = 0; tries < TRIES && this.#unknown(jobs).length > 0; tries++) {
      const turn = this.#making.then(() => this.#make(this.#unknown(jobs)))
      this.#making = turn.catch(() => {})
      await turn
    }
  }

  async #make(wanted: readonly Named[]): Promise<void> {
    if (wanted.length === 0) return
    const made = await this.#source.make(wanted.map(wordsOf))
    for (const [at, job] of wanted.entries()) {
      const { queue, name, version } = job
      const numbers = made[at]
      if (numbers === null || numbers === undefined) continue
      this.#numbers.set(keyOf(job), { lane: numbers[0], queue: numbers[1] })
      this.#keep({ id: numbers[0], queue, name, version })
    }
  }

  #unknown(jobs: readonly Named[]): readonly Named[] {
    const unknown = new Map<string, Named>()
    for (const job of jobs) if (!this.#numbers.has(keyOf(job))) unknown.set(keyOf(job), job)
    return [...unknown.values()]
  }

  /** Finds lanes as a transaction sees them: one that it is making itself is nobody else's yet, and not to be kept. */
  async within(tx: Tx, jobs: readonly Named[]): Promise<LaneFinder> {
    const own = new Map<string, LaneNumbers>()
    for (let tries = 0; tries < TRIES_WITHIN; tries++) {
      await this.know(jobs)
      const unknown = this.#unknown(jobs)
      if (unknown.length === 0) return this.find
      const seen = await this.#source.look(unknown.map(wordsOf), tx)
      for (const [at, job] of unknown.entries()) {
        const numbers = seen[at]
        if (numbers) own.set(keyOf(job), { lane: numbers[0], queue: numbers[1] })
      }
      if (unknown.every((job) => own.has(keyOf(job)))) break
      await this.#source.pause(2 ** tries)
    }
    return (job) => this.find(job) ?? own.get(keyOf(job))
  }

  /** Makes sure that lanes of these numbers are known. */
  async recognise(ids: ReadonlySet<number>): Promise<void> {
    const unknown = [...ids].filter((id) => !this.#lanes.has(id))
    if (unknown.length === 0) return
    for (const [id, queue, name, version] of await this.#source.names(unknown)) this.#keep({ id, queue, name, version })
  }

  /** Forgets all numbers: some are not there any more. What a number stood for is kept, since none is given twice. */
  forget(): void {
    this.#numbers.clear()
    this.#recent = undefined
  }

  /** The numbers of a lane, if it is known. */
  readonly find = (job: Named): LaneNumbers | undefined => {
    const recent = this.#recent
    if (recent !== undefined && isSameLane(recent, job)) return recent.numbers
    const numbers = this.#numbers.get(keyOf(job))
    if (numbers !== undefined) this.#recent = { ...pick(job), numbers }
    return numbers
  }

  /** The lane of a number that is known. */
  readonly lane = (id: number): Lane => this.#lanes.get(id)!

  #keep(lane: Lane): void {
    this.#lanes.set(lane.id, lane)
    this.queues.add(lane.queue)
  }
}

function wordsOf({ queue, name, version, group }: Named): Words {
  return [queue, name, version, group !== undefined]
}

function pick({ queue, name, version, group }: Named): Named {
  return { queue, name, version, group }
}

function keyOf({ queue, name, version, group }: Named): string {
  return `${version} ${group === undefined ? '' : '+'}${queue.length} ${queue}${name}`
}
