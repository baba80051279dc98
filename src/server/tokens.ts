// server/tokens.ts: tokens in a file: made once, kept as hashes, and read again when the file changes.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { MillraceError } from '../job/errors/errors.js'
import { refuseUnknown } from '../job/values/names.js'
import { describeError } from '../job/errors/failure.js'
import { invalid, mustBe } from '../job/values/options.js'
import { systemRuntime } from '../store/runtime.js'
import type { Runtime } from '../store/runtime.js'
import { PRINCIPAL_NAME, bearerOf } from './auth.js'
import type { Auth } from './auth.js'
import { ROLES } from './principal.js'
import type { Principal, Role } from './principal.js'

/** One token in a file of tokens. */
export interface TokenEntry {
  /** Whose it is: 1 to 64 characters of `A-Z a-z 0-9 . _ -`. Several tokens may have one name, to replace one by another. */
  readonly name: string
  /** SHA-256 of the token, in hexadecimal digits. */
  readonly hash: string
  /** What it may do. */
  readonly roles: readonly Role[]
  /** The queues that this holds for, in which `*` stands for any characters. */
  readonly queues: readonly string[]
  /** Until when, as ISO 8601. Default: for ever. */
  readonly expires?: string
  /** For people. */
  readonly note?: string
}

/** What a new token is for. */
export type NewToken = Omit<TokenEntry, 'hash'>

/** 32 random bytes: too many to guess, so that a plain hash of them is enough. */
const SECRET_BYTES = 32
/** The longest file of tokens. */
const MAX_FILE = 4_194_304
/** How long what is known of the file counts, at most. */
const FRESH = 1_000

/** Makes a token. The text is shown once; the entry belongs into the file, which holds a list of them. */
export function createToken(of: NewToken): { readonly token: string; readonly entry: TokenEntry } {
  const token = `mrt_${of.name}.${randomBytes(SECRET_BYTES).toString('base64url')}`
  const entry = parseEntry({ ...of, hash: hashOf(token).toString('hex') }, 'createToken')
  return { token, entry }
}

/** Knows the callers by the tokens of a file: a list of `TokenEntry` as JSON, read again when it changes. */
export function tokens(path: string, runtime: Pick<Runtime, 'now' | 'elapsed'> = systemRuntime()): Auth {
  if (typeof path !== 'string' || path === '') throw mustBe('tokens', 'the path of a file', path)
  const file = new TokenFile(path, runtime)
  return Object.assign(
    (request: Request) => {
      const token = bearerOf(request)
      return token === undefined ? undefined : file.find((known) => findIn(known, token, runtime.now()))
    },
    { byHash: (hash: string) => file.find((known) => findByHash(known, hash, runtime.now())) },
  )
}

/** Knows the callers by a list of tokens. */
export function tokenList(entries: readonly TokenEntry[], runtime: Pick<Runtime, 'now'> = systemRuntime()): Auth {
  const known = byName(parseEntries(entries, 'tokenList'))
  return Object.assign(
    (request: Request) => {
      const token = bearerOf(request)
      return token === undefined ? undefined : findIn(known, token, runtime.now())
    },
    { byHash: (hash: string) => findByHash(known, hash, runtime.now()) },
  )
}

type Known = ReadonlyMap<string, readonly TokenEntry[]>

class TokenFile {
  readonly #path: string
  readonly #runtime: Pick<Runtime, 'elapsed'>
  #known: Known | undefined
  /** What the file looked like when it was read. */
  #version = ''
  #checkedAt = -Infinity
  #reading: Promise<Known> | undefined

  constructor(path: string, runtime: Pick<Runtime, 'elapsed'>) {
    this.#path = path
    this.#runtime = runtime
  }

  async find(look: (known: Known) => Principal | undefined): Promise<Principal | undefined> {
    return look(await this.#tokens())
  }

  /** The tokens, looked up in the file again where that was long ago. Requests that come meanwhile share the look. */
  #tokens(): Known | Promise<Known> {
    if (this.#known !== undefined && this.#runtime.elapsed() - this.#checkedAt < FRESH) return this.#known
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    return this.#reading
  }

  /** A file that cannot be read lets nobody in: an old list might hold a token that was taken out of it. */
  async #read(): Promise<Known> {
    const checkedAt = this.#runtime.elapsed()
    try {
      const { mtimeNs, size, ino } = await stat(this.#path, { bigint: true })
      const version = `${mtimeNs} ${size} ${ino}`
      if (this.#known === undefined || version !== this.#version) {
        if (size > MAX_FILE) throw invalid(`tokens: ${this.#path} is larger than ${MAX_FILE} bytes.`)
        this.#known = byName(parseEntries(JSON.parse(await readFile(this.#path, 'utf8')), this.#path))
        this.#version = version
      }
      this.#checkedAt = checkedAt
      return this.#known
    } catch (error) {
      this.#known = undefined
      const message = `tokens: ${this.#path} cannot be read (${describeError(error).message}). It holds a list of entries as createToken returns them.`
      throw new MillraceError('INVALID_OPTION', message, { cause: error })
    }
  }
}

function findIn(known: Known, token: string, now: number): Principal | undefined {
  const name = /^mrt_([\w.-]+)\.[\w-]+$/.exec(token)?.[1]
  if (name === undefined) return undefined
  const hash = hashOf(token)
  let found: TokenEntry | undefined
  for (const entry of known.get(name) ?? []) {
    if (timingSafeEqual(hash, Buffer.from(entry.hash, 'hex'))) found = entry
  }
  return principalOf(found, now)
}

/** By the hash that a signed session names: nobody can try others. */
function findByHash(known: Known, hash: string, now: number): Principal | undefined {
  for (const entries of known.values()) {
    const found = entries.find((entry) => entry.hash === hash)
    if (found !== undefined) return principalOf(found, now)
  }
  return undefined
}

function principalOf(found: TokenEntry | undefined, now: number): Principal | undefined {
  if (found === undefined || (found.expires !== undefined && Date.parse(found.expires) <= now)) return undefined
  return { name: found.name, roles: found.roles, queues: found.queues }
}

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

function byName(entries: readonly TokenEntry[]): Known {
  const known = new Map<string, TokenEntry[]>()
  for (const entry of entries) {
    const same = known.get(entry.name)
    if (same === undefined) known.set(entry.name, [entry])
    else same.push(entry)
  }
  return known
}

function parseEntries(given: unknown, where: string): readonly TokenEntry[] {
  if (!Array.isArray(given)) throw mustBe(where, 'a list of tokens', given)
  return given.map((entry, index) => parseEntry(entry as TokenEntry, `${where}[${index}]`))
}

function parseEntry(entry: TokenEntry, where: string): TokenEntry {
  refuseUnknown(entry, ['name', 'hash', 'roles', 'queues', 'expires', 'note'], where)
  const { name, hash, roles, queues, expires, note } = entry
  if (typeof name !== 'string' || !PRINCIPAL_NAME.test(name)) {
    throw mustBe(`${where}: name`, '1 to 64 characters of A-Z a-z 0-9 . _ -', name)
  }
  if (typeof hash !== 'string' || !/^[0-9a-f]{64}$/.test(hash))
    throw mustBe(`${where}: hash`, '64 hexadecimal digits', hash)
  if (!Array.isArray(roles) || roles.length === 0 || !roles.every((role) => ROLES.includes(role))) {
    throw mustBe(`${where}: roles`, `a list of ${ROLES.join(', ')}`, roles)
  }
  if (
    !Array.isArray(queues) ||
    queues.length === 0 ||
    !queues.every((queue) => typeof queue === 'string' && queue !== '')
  ) {
    throw mustBe(`${where}: queues`, "a list of names of queues, such as ['mail', 'bill-*'] or ['*']", queues)
  }
  if (expires !== undefined && (typeof expires !== 'string' || Number.isNaN(Date.parse(expires)))) {
    throw mustBe(`${where}: expires`, 'a date as ISO 8601', expires)
  }
  if (note !== undefined && typeof note !== 'string') throw mustBe(`${where}: note`, 'text', note)
  return entry
}
