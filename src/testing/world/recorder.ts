// testing/world/recorder.ts: sits directly in front of the store and records every batch that it applied.
import type { Change, NewEdge } from '../../job/change.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { isFinished } from '../../job/job.js'
import type { Batch, Receipt, Store } from '../../store/store.js'
import type { History } from '../check/simulated-history.js'
import { describeLanding } from '../check/trace.js'

/** Commits the batches of processes and records them in the history. */
export class Recorder {
  readonly #store: Store
  readonly #history: History
  readonly #time: () => Millis
  /** The receipt of the last batch of each writer. */
  readonly #receipts = new Map<string, Receipt>()
  readonly #chainOf = new Map<string, string>()
  readonly #dependents = new Map<string, Set<string>>()
  /** Jobs that had not finished when they were last read. */
  readonly unfinished = new Set<string>()

  constructor(store: Store, history: History, time: () => Millis) {
    this.#store = store
    this.#history = history
    this.#time = time
    store.watch({ events: true }, (notice) => {
      for (const event of notice.events) history.add({ kind: 'event', time: time(), process: undefined, event })
    })
  }

  /** Commits a batch that a process sent. */
  async commit(process: string, batch: Batch): Promise<Receipt> {
    let receipt: Receipt
    try {
      receipt = await this.#store.commit(batch)
    } catch (error) {
      this.#history.writeTrace(
        process,
        `refused ${batch.writer}#${batch.seq}: ${(error as { code?: string }).code ?? 'error'}`,
      )
      throw error
    }
    const last = this.#receipts.get(batch.writer)
    const replay = last?.seq === batch.seq && (last === receipt || JSON.stringify(last) === JSON.stringify(receipt))
    this.#receipts.set(batch.writer, receipt)
    const ids = [...this.#touched(batch, receipt)]
    const records = await this.#store.get(ids)
    const after = new Map(ids.map((id, at) => [id, records[at]]))
    for (const [id, record] of after) this.#track(id, record)
    for (const job of receipt.asks.flat()) this.#history.count(job.ahead ? 'claim:ahead' : 'claim:plain')
    this.#history.add({ kind: 'landing', time: this.#time(), process, batch, receipt, replay, after })
    this.#history.writeTrace(process, describeLanding(batch, receipt, replay))
    return receipt
  }

  #track(id: string, record: JobRecord | undefined): void {
    if (record !== undefined && !isFinished(record.state)) this.unfinished.add(id)
    else this.unfinished.delete(id)
  }

  #touched(batch: Batch, receipt: Receipt): Set<string> {
    const ids = new Set<string>()
    batch.groups.forEach((group, at) => {
      if (receipt.groups[at]?.ok !== true) return
      for (const change of group) for (const id of this.#touchedBy(change)) ids.add(id)
    })
    for (const renewal of batch.renewals) ids.add(renewal.id)
    for (const jobs of receipt.asks) for (const job of jobs) ids.add(job.id)
    return ids
  }

  #addDependent(id: string, edges: readonly NewEdge[]): void {
    for (const { on } of edges) {
      const chain = this.#chainOf.get(on) ?? on
      const dependents = this.#dependents.get(chain)
      if (dependents === undefined) this.#dependents.set(chain, new Set([id]))
      else dependents.add(id)
    }
  }

  #touchedBy(change: Change): Iterable<string> {
    switch (change.kind) {
      case 'insert': {
        const { id, chainId } = change.job
        this.#chainOf.set(id, chainId)
        this.#addDependent(id, change.edges)
        return [id]
      }
      case 'move':
        this.#addDependent(change.id, change.waitsFor ?? [])
        return [change.id, ...(this.#dependents.get(this.#chainOf.get(change.id) ?? change.id) ?? [])]
      case 'note':
        return [change.id]
      case 'release':
        return this.#dependents.get(change.chain) ?? []
      case 'put':
        return []
    }
  }
}
