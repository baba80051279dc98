// testing/check/steps.ts: steps that were remembered are not taken again, and signals are taken once.
import type { Insert, Move, Note } from '../../job/change.js'
import type { Answer, Signalled, Stepped } from './history.js'
import type { LedgerListener, Tracked } from './ledger.js'
import type { Report } from './violation.js'

/** Follows what is remembered of each job. */
export class StepChecks implements LedgerListener {
  readonly #report: Report
  /** By job and step: what was remembered, and by which run. */
  readonly #steps = new Map<string, Map<string, { readonly fence: number; readonly result: string | undefined }>>()
  /** By the row of a signal: its job. */
  readonly #owners = new Map<string, string>()
  /** By job: what was sent to it as its signal, as text. */
  readonly #sent = new Map<string, string | undefined>()
  /** Jobs whose signal was said to be taken. */
  readonly #taken = new Set<string>()

  constructor(report: Report) {
    this.#report = report
  }

  /** Of a job that has the id of a removed one, nothing is remembered. */
  inserted({ id }: Tracked, { job: { kind, parentId } }: Insert): void {
    if (kind === 'signal') this.#owners.set(id, parentId!)
    this.#steps.delete(id)
    this.#sent.delete(id)
    this.#taken.delete(id)
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

  /** A step was taken, or has answered. */
  stepped({ time, id, fence, name, result }: Stepped): void {
    const known = this.#steps.get(id)?.get(`step:${name}`)
    if (result === undefined) {
      if (known === undefined || known.fence >= fence) return
      this.#report('step', time, id, `Step '${name}', remembered by fence ${known.fence}, was taken by fence ${fence}.`)
    } else if (known !== undefined && known.fence <= fence && known.result !== result) {
      this.#report('step', time, id, `Step '${name}' gave ${result}, and ${known.result} is remembered.`)
    }
  }

  /** A handler was given its signal: one that was removed meanwhile, and added anew, has had another. */
  signalled({ time, id, data }: Signalled): void {
    if (!this.#sent.has(id)) return
    const sent = this.#sent.get(id)
    if (sent !== JSON.stringify(data)) this.#report('signal', time, id, `It was given ${data}, and was sent ${sent}.`)
  }

  answered({ time, call, id, said }: Answer): void {
    if (call !== 'signal' || id === undefined || !said.ok || said.value !== true) return
    if (this.#taken.has(id)) this.#report('signal', time, id, 'Two were told that their signal was taken.')
    this.#taken.add(id)
  }
}
