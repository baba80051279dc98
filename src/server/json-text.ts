// server/json-text.ts: answers as JSON text in which stored JSON stands as it was stored, so that no number changes on its way.

/** Text that is JSON already. */
export class RawJson {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** Stored JSON as a part of an answer; undefined stays undefined. */
export function raw(text: string | undefined): RawJson | undefined {
  return text === undefined ? undefined : new RawJson(text)
}

/** The JSON text of plain data in which `RawJson` stands as it is. Infinite numbers are null, as in JSON. */
export function jsonText(value: unknown): string {
  if (value instanceof RawJson) return value.text
  if (Array.isArray(value)) return `[${value.map((each) => (each === undefined ? 'null' : jsonText(each))).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const fields: string[] = []
  for (const [key, each] of Object.entries(value)) {
    if (each !== undefined) fields.push(`${JSON.stringify(key)}:${jsonText(each)}`)
  }
  return `{${fields.join(',')}}`
}
