// server/redact.ts: hides secrets in what read routes answer: values under telling keys, and what looks like one in text.
import { refuseUnknown } from '../job/values/names.js'
import { invalid, mustBe } from '../job/values/options.js'
import { RawJson } from './json-text.js'

/** What read routes hide of the data, results, progress, errors, logs and steps of jobs. */
export interface RedactOptions {
  /**
   * Hides the values under keys that match, at any depth, and in lines of text what follows such a key. Default:
   * passwords, secrets, tokens, authorization, cookies, API keys, cards, IBANs and social security numbers.
   */
  readonly keys?: RegExp
  /** Hides these paths as well: `['data.user.email']`; `*` stands for any key or index. Default: none. */
  readonly paths?: readonly string[]
  /**
   * Returns what stands in place of a hidden value; `place` is its path, as in `data.user.email`. Where it throws, the
   * value is hidden. Default: `'•••'`.
   */
  readonly with?: (value: unknown, place: string) => unknown
}

/** What stands in place of what is hidden. */
const HIDDEN = '•••'

const DEFAULT_KEYS = /pass(word)?|secret|token|authorization|cookie|api[-_]?key|card|iban|ssn/i

/** Hides secrets. JSON is changed as text, so that everything else stays as it was stored, numbers as well. */
export interface Redactor {
  /** Whether it hides anything. */
  readonly hides: boolean
  /** Whether values at a path are hidden, so that a search must not answer by them; undefined in it is any index. */
  hidesPath(path: readonly (string | undefined)[]): boolean
  /** Stored JSON, which has its place in an answer: `data`, `result`, `progress`. */
  json(text: string, place: string): string
  /** Plain data in which texts are for people, as errors are. */
  plain(value: unknown, place: string): RawJson
  /** A line of text. */
  text(line: string): string
}

/** Hides nothing. */
export const REVEALS: Redactor = {
  hides: false,
  hidesPath: () => false,
  json: (text) => text,
  plain: (value) => new RawJson(JSON.stringify(value)),
  text: (line) => line,
}

/** Checks the option `redact`; `false` hides nothing. */
export function parseRedact(given: RedactOptions | false | undefined): Redactor {
  if (given === false) return REVEALS
  const options = given ?? {}
  refuseUnknown(options, ['keys', 'paths', 'with'], 'serve: redact')
  const { keys, paths = [], with: replace } = options
  if (keys !== undefined && !(keys instanceof RegExp)) throw mustBe('serve: redact.keys', 'a regular expression', keys)
  if (!Array.isArray(paths)) throw mustBe('serve: redact.paths', "a list of paths such as ['data.user.email']", paths)
  for (const path of paths as readonly unknown[]) {
    if (typeof path === 'string' && /^(data|result|progress|steps)(\.[^.]+)*$/.test(path)) continue
    throw invalid(`serve: redact.paths: a path begins with data, result, progress or steps, as in 'data.user.email'.`)
  }
  if (replace !== undefined && typeof replace !== 'function') throw mustBe('serve: redact.with', 'a function', replace)
  return new KeyRedactor(keys, paths, replace)
}

class KeyRedactor implements Redactor {
  readonly hides = true
  readonly #keys: RegExp
  /** Whether a text in which no key is found cannot hold one: keys are matched anywhere, and were not escaped. */
  readonly #skips: boolean
  readonly #paths: readonly (readonly string[])[]
  readonly #replace: ((value: unknown, place: string) => unknown) | undefined

  constructor(keys: RegExp | undefined, paths: readonly string[], replace: RedactOptions['with']) {
    // Without the flags that make `test` remember where it was.
    this.#keys = keys === undefined ? DEFAULT_KEYS : new RegExp(keys.source, keys.flags.replace(/[gy]/g, ''))
    this.#skips = keys === undefined && paths.length === 0
    this.#paths = paths.map((path) => path.split('.'))
    this.#replace = replace
  }

  hidesPath(path: readonly (string | undefined)[]): boolean {
    return path.some(
      (key, at) => (at > 0 && key !== undefined && this.#keys.test(key)) || this.#isListed(path.slice(0, at + 1)),
    )
  }

  json(text: string, place: string): string {
    if (this.#skips && !this.#keys.test(text) && !text.includes('\\u')) return text
    return this.#scan(text, place, false)
  }

  plain(value: unknown, place: string): RawJson {
    return new RawJson(this.#scan(JSON.stringify(value), place, true))
  }

  text(line: string): string {
    return this.#withoutPairs(line)
      .replace(CREDENTIALS, `$1${HIDDEN}@`)
      .replace(SCHEME, `$1 ${HIDDEN}`)
      .replace(TOKEN, HIDDEN)
  }

  /** Without the values that follow telling keys. What follows another key may hold a key itself. */
  #withoutPairs(line: string): string {
    let shown = ''
    let copied = 0
    for (const found of line.matchAll(KEY)) {
      const from = found.index + found[0].length
      if (from <= copied || found.index < copied || !this.#keys.test(found[2]!)) continue
      const value = valueAt(line, from)
      if (value === undefined || value === HIDDEN) continue
      shown += line.slice(copied, from) + String(this.#hidden(value, 'text'))
      copied = from + value.length
    }
    return shown + line.slice(copied)
  }

  #isListed(path: readonly (string | undefined)[]): boolean {
    const fits = (part: string, key: string | undefined): boolean =>
      part === '*' || (key === undefined ? /^\d+$/.test(part) : part === key)
    return this.#paths.some(
      (listed) => listed.length === path.length && listed.every((part, at) => fits(part, path[at])),
    )
  }

  #hidden(value: unknown, place: string): unknown {
    if (this.#replace === undefined) return HIDDEN
    try {
      return this.#replace(value, place)
    } catch {
      return HIDDEN
    }
  }

  /** What stands for a value of JSON text. */
  #replacement(text: string, path: readonly string[]): string {
    if (this.#replace === undefined) return JSON.stringify(HIDDEN)
    const place = path.join('.')
    try {
      return JSON.stringify(this.#hidden(JSON.parse(text), place)) ?? JSON.stringify(HIDDEN)
    } catch {
      return JSON.stringify(HIDDEN)
    }
  }

  /** Walks through JSON text once, without recursion, because what was stored may be deep. */
  #scan(text: string, place: string, people: boolean): string {
    const path = place.split('.')
    if (this.#isListed(path)) return this.#replacement(text, path)
    const root = path.length
    let out = ''
    let copied = 0
    const replace = (from: number, to: number, by: string): void => {
      out += text.slice(copied, from) + by
      copied = to
    }
    /** For each array or object that is open, the index of its entry; objects have none. */
    const open: (number | undefined)[] = []
    for (let at = 0; at < text.length;) {
      const char = text[at]
      if (char === '{' || char === '[') {
        open.push(char === '[' ? 0 : undefined)
        path.length = root + open.length - 1
        if (char === '[') {
          path.push('0')
          if (this.#isListed(path) && text[at + 1] !== ']') {
            const end = valueEnd(text, at + 1)
            replace(at + 1, end, this.#replacement(text.slice(at + 1, end), path))
            at = end
            continue
          }
        }
        at++
      } else if (char === '}' || char === ']') {
        open.pop()
        at++
      } else if (char === ',') {
        at++
        const index = open.at(-1)
        if (index === undefined) continue
        open[open.length - 1] = index + 1
        path.length = root + open.length - 1
        path.push(String(index + 1))
        if (!this.#isListed(path)) continue
        const end = valueEnd(text, at)
        replace(at, end, this.#replacement(text.slice(at, end), path))
        at = end
      } else if (char === '"') {
        const end = stringEnd(text, at)
        let colon = end
        while (isSpace(text[colon])) colon++
        if (text[colon] !== ':' || open.at(-1) !== undefined || open.length === 0) {
          // A value.
          if (people) {
            const value = JSON.parse(text.slice(at, end)) as string
            const shown = this.text(value)
            if (shown !== value) replace(at, end, JSON.stringify(shown))
          }
          at = end
          continue
        }
        const key = JSON.parse(text.slice(at, end)) as string
        at = colon + 1
        path.length = root + open.length - 1
        path.push(key)
        if (!this.#keys.test(key) && !this.#isListed(path)) continue
        while (isSpace(text[at])) at++
        const valueTo = valueEnd(text, at)
        replace(at, valueTo, this.#replacement(text.slice(at, valueTo), path))
        at = valueTo
      } else at++
    }
    return out + text.slice(copied)
  }
}

/** A key and a sign in a line of text. All repetitions are bounded, so that no line takes long. */
const KEY = /(["']?)([\w.-]{1,64})\1\s{0,4}[:=]\s{0,4}/g
/** The most characters that are looked at for one value. */
const MAX_VALUE = 4_200

/** The value that begins there: in quotes, after the name of a scheme, or up to the next sign. */
function valueAt(line: string, from: number): string | undefined {
  return /^(?:"(?:[^"\\]|\\.){0,4096}"?|'[^']{0,4096}'?|(?:Bearer|Basic)\s{1,4}[^\s,;"']{1,4096}|[^\s,;&"'}\])]{1,4096})/i.exec(
    line.slice(from, from + MAX_VALUE),
  )?.[0]
}

/** The user and password of a URL. */
const CREDENTIALS = /\b([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/@:]{0,256}:[^\s/@]{1,256}@/gi
/** What follows the name of a scheme of authorization. */
const SCHEME = /\b(Bearer|Basic)\s{1,4}[\w.~+/=-]{8,4096}/g
/** A token of this server. */
const TOKEN = /\bmrt_[\w.-]{1,64}\.[\w-]{20,64}/g

function isSpace(char: string | undefined): boolean {
  return char === ' ' || char === '\n' || char === '\t' || char === '\r'
}

/** The index after the string that begins at `at`. */
function stringEnd(text: string, at: number): number {
  for (let end = at + 1; end < text.length; end++) {
    if (text[end] === '\\') end++
    else if (text[end] === '"') return end + 1
  }
  return text.length
}

/** The index after the value that begins at `at`. */
function valueEnd(text: string, at: number): number {
  let depth = 0
  for (let end = at; end < text.length;) {
    const char = text[end]
    if (char === '"') end = stringEnd(text, end)
    else {
      if (depth === 0 && (char === ',' || char === '}' || char === ']')) return end
      if (char === '{' || char === '[') depth++
      if (char === '}' || char === ']') depth--
      end++
    }
    if (depth === 0 && (char === '"' || char === '}' || char === ']')) return end
  }
  return text.length
}
