// job/quote.ts: quotes a rejected value in an error message.

/** The most characters quoted of a text. */
const MAX_LENGTH = 60

/** Quotes a value for an error message, on one line and short: 'text', 42, null, an array, an instance of Date. Never throws. */
export function quote(value: unknown): string {
  if (typeof value === 'string') {
    const shown = value.length > MAX_LENGTH ? `${value.slice(0, MAX_LENGTH)}…` : value
    return `'${JSON.stringify(shown).slice(1, -1).replaceAll('\\"', '"')}'`
  }
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'symbol') return 'a symbol'
  if (isArray(value)) return 'an array'
  if (typeof value === 'object' && value !== null) return quoteObject(value)
  return Object.is(value, -0) ? '-0' : String(value)
}

/** `Array.isArray`, which throws for a revoked proxy. */
function isArray(value: unknown): boolean {
  try {
    return Array.isArray(value)
  } catch {
    return false
  }
}

function quoteObject(value: object): string {
  const name = className(value)
  return name === undefined || name === 'Object' ? 'an object' : `an instance of ${name}`
}

/** The name of the class of an object, or undefined where it has none. Safe on hostile objects. */
export function className(value: object): string | undefined {
  try {
    const name: unknown = (value.constructor as { name?: unknown } | undefined)?.name
    return typeof name === 'string' && name !== '' ? name : undefined
  } catch {
    return undefined
  }
}
