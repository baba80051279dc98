// server/version.ts: the version of this package, as answers name it.
import { readFileSync } from 'node:fs'

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  readonly version: string
}

/** The version of this package. */
export const VERSION: string = version
