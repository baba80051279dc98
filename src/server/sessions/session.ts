// server/sessions/session.ts: sessions of browsers: a signed cookie that names a token, which is judged again at each request.
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Duration, Millis } from '../../job/values/duration.js'
import { refuseUnknown } from '../../job/values/names.js'
import { mustBe, positive } from '../../job/values/options.js'
import type { Runtime } from '../../store/runtime.js'
import { bearerOf } from '../auth.js'
import type { Auth } from '../auth.js'
import type { Principal } from '../principal.js'

/** The sessions of browsers. */
export interface SessionOptions {
  /** Signs the cookies, 32 characters or more: give all servers behind one address the same. Default: one of this process. */
  readonly secret?: string
  /** How long a session lasts. Default 12 h. */
  readonly lasts?: Duration
}

/** `SessionOptions`, checked. */
export interface SessionSettings {
  readonly secret: string
  readonly lasts: Millis
}

const HOURS_12 = 12 * 60 * 60 * 1000

/** Checks the option `session`. */
export function parseSession(given: SessionOptions = {}): SessionSettings {
  refuseUnknown(given, ['secret', 'lasts'], 'serve: session')
  const { secret = randomBytes(32).toString('base64url'), lasts = HOURS_12 } = given
  if (typeof secret !== 'string' || secret.length < 32) {
    throw mustBe('serve: session.secret', 'text of at least 32 characters', typeof secret)
  }
  return { secret, lasts: positive(lasts, 'serve: session.lasts') }
}

/** What a cookie holds. The hash of a token does not open anything by itself: the cookie is signed. */
interface Session {
  readonly hash: string
  readonly until: number
}

/** Opens and reads sessions. */
export class Sessions {
  readonly #settings: SessionSettings
  readonly #auth: Auth | undefined
  readonly #runtime: Pick<Runtime, 'now'>

  constructor(settings: SessionSettings, auth: Auth | undefined, runtime: Pick<Runtime, 'now'>) {
    this.#settings = settings
    this.#auth = auth
    this.#runtime = runtime
  }

  /** The cookie of a new session for the token of a request, and when it ends; undefined: the host has sessions of its own. */
  open(request: Request, secure: boolean): { readonly cookie: string; readonly until: number } | undefined {
    const token = bearerOf(request)
    if (token === undefined || this.#auth?.byHash === undefined) return undefined
    const { lasts } = this.#settings
    const session: Session = {
      hash: createHash('sha256').update(token).digest('hex'),
      until: this.#runtime.now() + lasts,
    }
    const text = Buffer.from(JSON.stringify(session)).toString('base64url')
    const cookie = cookieOf(secure, `${text}.${this.#sign(text).toString('base64url')}`, Math.floor(lasts / 1000))
    return { cookie, until: session.until }
  }

  /** The cookie that ends a session. */
  end(secure: boolean): string {
    return cookieOf(secure, '', 0)
  }

  /** The caller of a request that has the cookie of a session; undefined: it has none, or its token is no longer known. */
  async find(request: Request): Promise<Principal | undefined> {
    const value = cookieIn(request)
    if (value === undefined || this.#auth?.byHash === undefined) return undefined
    const [text, signature, ...more] = value.split('.')
    if (text === undefined || signature === undefined || more.length > 0) return undefined
    const [given, expected] = [Buffer.from(signature, 'base64url'), this.#sign(text)]
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined
    const { hash, until } = JSON.parse(Buffer.from(text, 'base64url').toString()) as Session
    return until <= this.#runtime.now() ? undefined : this.#auth.byHash(hash)
  }

  #sign(text: string): Buffer {
    return createHmac('sha256', this.#settings.secret).update(text).digest()
  }
}

/** The name of the cookie. With the prefix, browsers take it from this host alone, and over TLS. */
const NAME = 'millrace'
const SECURE_NAME = `__Host-${NAME}`

function cookieOf(secure: boolean, value: string, seconds: number): string {
  const name = secure ? SECURE_NAME : NAME
  return `${name}=${value}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure ? '; Secure' : ''}`
}

/** The longest cookie that is looked at. */
const MAX_COOKIE = 1_024

function cookieIn(request: Request): string | undefined {
  const header = request.headers.get('cookie')
  if (header === null) return undefined
  let found: string | undefined
  for (const part of header.split(';')) {
    const [name, value, ...more] = part.trim().split('=')
    if (value === undefined || more.length > 0 || value.length > MAX_COOKIE) continue
    if (name === SECURE_NAME) return value
    if (name === NAME) found = value
  }
  return found
}
