// server/sessions/login.ts: logs browsers in and out, and bounds how often one address may fail to.
import { isMillraceError } from '../../job/errors/errors.js'
import type { Runtime } from '../../store/runtime.js'
import { authenticate } from '../auth.js'
import { RateLimiter } from '../guard.js'
import type { ServeSettings } from '../options.js'
import type { Principal } from '../principal.js'
import { Sessions } from './session.js'

/** Failed logins of one address in a minute. */
const MOST_FAILED = { max: 5, per: 60_000 }

type LoginSettings = Pick<ServeSettings, 'auth' | 'session' | 'origin' | 'logger'>

/** Who logged in, and the cookie that says so. */
interface LoggedIn {
  readonly principal: Principal
  /** Absent: the host has sessions of its own, or the server has no auth. */
  readonly session: { readonly cookie: string; readonly until: number } | undefined
}

/** Logs browsers in and out. */
export class Logins {
  readonly #sessions: Sessions
  readonly #settings: LoginSettings
  readonly #failed: RateLimiter

  constructor(settings: LoginSettings, runtime: Pick<Runtime, 'now' | 'elapsed'>) {
    this.#sessions = new Sessions(settings.session, settings.auth, runtime)
    this.#settings = settings
    this.#failed = new RateLimiter(MOST_FAILED, runtime)
  }

  /** Opens a session for the token of a request. Failures are counted and logged; no job is written for them. */
  async logIn(request: Request, address = 'an unknown address'): Promise<LoggedIn> {
    this.#failed.refuse(address)
    const { auth, logger } = this.#settings
    try {
      const principal = await authenticate(auth, request, this.#sessions)
      return { principal, session: this.#sessions.open(request, this.#isSecure(request)) }
    } catch (error) {
      if (isMillraceError(error, 'UNAUTHORIZED')) {
        this.#failed.count(address)
        logger.warn({ address }, `A login from ${address} failed.`)
      }
      throw error
    }
  }

  /** The cookie that ends the session of a request. */
  logOut(request: Request): string {
    return this.#sessions.end(this.#isSecure(request))
  }

  /** Whether browsers reach the server over TLS. */
  #isSecure(request: Request): boolean {
    return (this.#settings.origin ?? request.url).startsWith('https://')
  }
}
