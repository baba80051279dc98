// stores/postgres/drivers/literals.ts: writes the values of a call into its text, for messages of several statements, which
// take no parameters.
import type { Call, Value } from './driver.js'

/** The text of a call with its values in place of the parameters. */
export function literalText({ text, values }: Call): string {
  return text.replaceAll(/\$(\d+)/g, (_, number: string) => literal(values[Number(number) - 1]!))
}

/** A literal that means the same whatever `standard_conforming_strings` is. */
function literal(value: Value): string {
  if (value === null) return 'null'
  const quoted = `'${String(value).replaceAll("'", "''")}'`
  return quoted.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted
}
