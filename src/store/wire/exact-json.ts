// store/wire/exact-json.ts: plain data as text and back, with all that JSON loses: undefined beside absent, infinite numbers,
// NaN and -0.

/** What JSON would lose: where it stands, and what it is. */
type Loss = readonly [path: readonly (string | number)[], what: keyof typeof lost]

const lost = { undefined, inf: Infinity, '-inf': -Infinity, nan: NaN, '-0': -0 } as const

/**
 * The text of a value of plain data: objects, arrays, strings, numbers, booleans, null and undefined. What JSON would lose
 * is listed beside it, so that reading costs nothing where nothing would be lost.
 */
export function exactText(value: unknown): string {
  const losses: Loss[] = []
  search(value, [], losses)
  return JSON.stringify(losses.length === 0 ? [value] : [value, losses])
}

/** The value of a text that `exactText` made. */
export function valueOf(text: string): unknown {
  return valueOfParsed(JSON.parse(text))
}

/** The value of such a text, parsed; it is used up. Throws for anything else: it may come from a network. */
export function valueOfParsed(given: unknown): unknown {
  const parsed = given as [value: unknown, losses?: readonly Loss[]]
  if (!Array.isArray(parsed) || parsed.length < 1 || parsed.length > 2)
    throw new TypeError('no list of a value and its losses')
  for (const [path, what] of parsed[1] ?? []) {
    if (!Object.hasOwn(lost, what)) throw new TypeError('an unknown loss')
    put(parsed, path, lost[what])
  }
  return parsed[0]
}

function search(value: unknown, path: (string | number)[], losses: Loss[]): void {
  if (typeof value === 'number') {
    if (Number.isFinite(value) && !Object.is(value, -0)) return
    losses.push([[...path], Object.is(value, -0) ? '-0' : value > 0 ? 'inf' : value < 0 ? '-inf' : 'nan'])
  } else if (value === undefined) losses.push([[...path], 'undefined'])
  else if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at++) searchIn(value[at], at, path, losses)
  } else if (typeof value === 'object' && value !== null) {
    for (const key of Object.keys(value)) searchIn((value as Record<string, unknown>)[key], key, path, losses)
  }
}

function searchIn(value: unknown, key: string | number, path: (string | number)[], losses: Loss[]): void {
  if (typeof value === 'string' || typeof value === 'boolean') return
  path.push(key)
  search(value, path, losses)
  path.pop()
}

/** Defined and not assigned: a key may be `__proto__`. */
function put(root: readonly unknown[], path: readonly (string | number)[], value: unknown): void {
  let target: object = root
  let key: string | number = 0
  for (const next of path) {
    target = Object.getOwnPropertyDescriptor(target, key)!.value as object
    key = next
  }
  Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true })
}
