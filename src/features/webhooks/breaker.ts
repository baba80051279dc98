// features/webhooks/breaker.ts: a circuit breaker by host: pauses calls to a failing host, then probes it.
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'

/** Settings of the circuit breaker. */
export interface BreakerSettings {
  /** Consecutive failures until it opens. */
  readonly failures: number
  /** How long it stays open at first; doubles with each failed probe. */
  readonly coolDown: Millis
  /** Maximum time that it stays open. */
  readonly max: Millis
}

/** Permission to call a host, to be returned with `leave`; or how long to wait. */
export type Pass = { readonly wait: Millis } | { readonly probe: boolean }

interface Host {
  failures: number
  /** How often it opened. */
  trips: number
  /** Open until this time. */
  until: Millis
  probing: boolean
}

/** Maximum number of hosts in memory. */
const MAX_HOSTS = 1000

/** The circuit breakers of all hosts, as seen by this process. */
export class Breaker {
  readonly #runtime: Runtime
  readonly #settings: BreakerSettings | undefined
  readonly #hosts = new Map<string, Host>()

  /** Without settings, it never opens. */
  constructor(runtime: Runtime, settings: BreakerSettings | undefined) {
    this.#runtime = runtime
    this.#settings = settings
  }

  /** Requests permission to call a host. */
  enter(name: string): Pass {
    const host = this.#hosts.get(name)
    if (this.#settings === undefined || host === undefined || host.trips === 0) return { probe: false }
    const remaining = host.until - this.#runtime.elapsed()
    if (remaining > 0) return { wait: Math.ceil(remaining) }
    if (host.probing) return { wait: this.#settings.coolDown }
    host.probing = true
    return { probe: true }
  }

  /** Reports how the call went; `undefined` if it was aborted. */
  leave(name: string, pass: Pass, succeeded: boolean | undefined): void {
    const settings = this.#settings
    if (settings === undefined || 'wait' in pass) return
    if (succeeded === true) {
      this.#hosts.delete(name)
      return
    }
    const host = this.#hosts.get(name) ?? { failures: 0, trips: 0, until: 0, probing: false }
    if (pass.probe) host.probing = false
    if (succeeded === undefined) return
    host.failures++
    this.#hosts.set(name, host)
    if (this.#hosts.size > MAX_HOSTS) this.#hosts.delete(this.#hosts.keys().next().value!)
    // Calls that were running when it opened do not prolong it.
    if (!pass.probe && (host.trips > 0 || host.failures < settings.failures)) return
    host.until = this.#runtime.elapsed() + Math.min(settings.coolDown * 2 ** host.trips, settings.max)
    host.trips++
  }
}
