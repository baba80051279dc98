// features/webhooks/breaker.ts: leaves a host alone that has failed again and again, and tries it with one delivery at a time.
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'

/** When a host is left alone. */
export interface BreakerSettings {
  /** Failures in a row until then. */
  readonly failures: number
  /** For how long at first; it doubles with each probe that fails. */
  readonly coolDown: Millis
  /** For how long at most. */
  readonly max: Millis
}

/** Leave to call a host, to be given back; or how long to wait. */
export type Pass = { readonly wait: Millis } | { readonly probe: boolean }

interface Host {
  failures: number
  /** How often it was left alone. */
  trips: number
  /** Left alone until then. */
  until: Millis
  probing: boolean
}

/** Hosts that are remembered at most. */
const MOST_HOSTS = 1000

/** The failures of hosts, as this process has seen them. */
export class Breaker {
  readonly #runtime: Runtime
  readonly #settings: BreakerSettings | undefined
  readonly #hosts = new Map<string, Host>()

  /** Without settings, no host is ever left alone. */
  constructor(runtime: Runtime, settings: BreakerSettings | undefined) {
    this.#runtime = runtime
    this.#settings = settings
  }

  /** Asks for leave to call a host. */
  enter(name: string): Pass {
    const host = this.#hosts.get(name)
    if (this.#settings === undefined || host === undefined || host.trips === 0) return { probe: false }
    const left = host.until - this.#runtime.elapsed()
    if (left > 0) return { wait: Math.ceil(left) }
    if (host.probing) return { wait: this.#settings.coolDown }
    host.probing = true
    return { probe: true }
  }

  /** How the call went: `undefined` where it was broken off. */
  leave(name: string, pass: Pass, well: boolean | undefined): void {
    const settings = this.#settings
    if (settings === undefined || 'wait' in pass) return
    if (well === true) {
      this.#hosts.delete(name)
      return
    }
    const host = this.#hosts.get(name) ?? { failures: 0, trips: 0, until: 0, probing: false }
    if (pass.probe) host.probing = false
    if (well === undefined) return
    host.failures++
    this.#hosts.set(name, host)
    if (this.#hosts.size > MOST_HOSTS) this.#hosts.delete(this.#hosts.keys().next().value!)
    // Those that were under way when it was given up say nothing new.
    if (!pass.probe && (host.trips > 0 || host.failures < settings.failures)) return
    host.until = this.#runtime.elapsed() + Math.min(settings.coolDown * 2 ** host.trips, settings.max)
    host.trips++
  }
}
