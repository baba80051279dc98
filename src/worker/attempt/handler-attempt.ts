// worker/attempt/handler-attempt.ts: an attempt as its handler uses it: steps, children, notes and transactions.
import type { OperationResult, UpdateOptions } from '../../queue/job.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { parseWhen } from '../../queue/add-options.js'
import { notInBatch } from '../batches/handler.js'
import type { Leases } from '../leases.js'
import type { ParsedHandler } from '../options.js'
import type { WorkerParts } from '../parts.js'
import { Attempt } from './attempt.js'
import { Children } from './children.js'
import { ProgressWriter } from './progress-writer.js'
import { DurableSteps } from './steps.js'
import { AttemptTransactions, sentBack } from './transaction/attempt-transactions.js'

/** An attempt with what the calls of its handler need. All of that is created on first use. */
export class HandlerAttempt extends Attempt {
  declare transactions: AttemptTransactions | undefined
  steps: DurableSteps | undefined
  #progressWriter: ProgressWriter | undefined
  readonly #leases: Leases

  constructor(parts: WorkerParts, leases: Leases, record: JobRecord, handler: ParsedHandler, leaseEnds: Millis) {
    super(parts, record, handler, leaseEnds)
    this.#leases = leases
  }

  /** Writes the notes of its handler. */
  useProgressWriter(): ProgressWriter {
    return (this.#progressWriter ??= new ProgressWriter(this))
  }

  /** The durable steps of its handler. */
  useSteps(): DurableSteps {
    return (this.steps ??= new DurableSteps(this, this.useProgressWriter()))
  }

  /** The jobs that its handler adds and waits for. */
  useChildren(): Children {
    if (this.children === undefined) {
      const adder = this.parts.adders.for(this.record.queue)
      this.children = new Children(this.record, adder, (call) => this.uncaught(call))
    }
    return this.children
  }

  /** The transactions of its handler. */
  useTransactions(): AttemptTransactions {
    if (this.inBatch) throw notInBatch()
    if (this.postponed !== undefined) throw sentBack()
    if (this.transactions === undefined) {
      this.transactions = new AttemptTransactions(this, this.#leases)
      if (this.parts.connection.store.can.transactions) this.handler.transacts = true
    }
    return this.transactions
  }

  /** `job.update` by its own handler: its data at once, and its next run once the handler has returned. */
  async update(id: string, changes: UpdateOptions): Promise<OperationResult> {
    const { operations } = this.parts
    const { delay, runAt, ...rest } = changes ?? {}
    const isOwn = this.running && this.lost === undefined && (delay !== undefined || runAt !== undefined)
    if (!isOwn) return operations.update(id, changes)
    if (this.transactions?.followUps !== undefined) throw sentBack()
    const run = parseWhen(changes, 'update') ?? { in: 0 }
    const others = Object.values(rest).some((value) => value !== undefined)
    const done = others ? await operations.update(id, rest) : { record: this.record }
    this.postponed = 'at' in run ? run : run.in
    return { ...done, done: true }
  }
}
