// testing/check/steps.ts: checks that stored durable steps do not run again, and that each signal is accepted once.
import type { Insert, Move, Note } from '../../job/change.js'
import type { Returned, Signalled, Stepped } from './simulated-history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'

/** Tracks the stored steps and the signals of each job. */
export class StepChecks implements LedgerListener {
  readonly #report: Report
  /** By job and step: the stored result, and the fence of the run that stored it. */
  readonly #steps = new Map<string, Map<string, { readonly fence: number; readonly result: string | undefined }>>()
  /** By the id of a signal's row: its job. */
  readonly #owners = new Map<string, string>()
  /** By job: the data of the signal that was sent to it, as JSON text. */
  readonly #sent = new Map<string, string | undefined>()
  /** Jobs for which a caller's signal was accepted. */
  readonly #accepted = new Set<string>()

  constructor(report: Report) {
    this.#report = report
  }

  /** A job that reuses the id of a removed one starts without steps and signals. */
  inserted({ id }: Tracked, { job: { kind, parentId } }: Insert): void {
    if (kind === 'signal') this.#owners.set(id, parentId!)
    this.#steps.delete(id)
    this.#sent.delete(id)
    this.#accepted.delete(id)
  }

  moving({ id }: Tracked, { to, set }: Move): void {
    const owner = this.#owners.get(id)
    if (owner !== undefined && to === 'completed') this.#sent.set(owner, set.result)
  }

  noted({ id }: Tracked, { steps = [], fence }: Note): void {
    if (steps.length === 0) return
    const known = this.#steps.get(id) ?? new Map()
    this.#steps.set(id, known)
    for (const { name, result } of steps) known.set(name, { fence, result })
  }

  /** A step runs, or its call has returned. */
  stepped({ time, id, fence, name, result }: Stepped): void {
    const known = this.#steps.get(id)?.get(`step:${name}`)
    if (result === undefined) {
      if (known === undefined || known.fence >= fence) return
      this.#report('step', time, id, `Step '${name}', stored by fence ${known.fence}, ran again for fence ${fence}.`)
    } else if (known !== undefined && known.fence <= fence && known.result !== result) {
      this.#report('step', time, id, `Step '${name}' returned ${result}, but ${known.result} is stored.`)
    }
  }

  /** A handler received its signal. A job that was removed meanwhile and added again may have received another one. */
  signalled({ time, id, data }: Signalled): void {
    if (!this.#sent.has(id)) return
    const sent = this.#sent.get(id)
    if (sent !== JSON.stringify(data)) this.#report('signal', time, id, `It received ${data}, but ${sent} was sent.`)
  }

  returned({ time, call, id, result }: Returned): void {
    if (call !== 'signal' || id === undefined || !result.ok || result.value !== true) return
    if (this.#accepted.has(id)) this.#report('signal', time, id, 'Two calls returned that their signal was accepted.')
    this.#accepted.add(id)
  }
}
