// store/packages.ts: imports optional packages when they are first used, with a helpful error if one cannot be
// imported.
import { MillraceError } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'

/** An optional package. */
export interface OptionalPackage {
  readonly name: string
  /** What needs it, as the beginning of the error message. */
  readonly neededBy: string
  /** What to install: its name, with a version if not every version works. */
  readonly install?: string
  /** An alternative, as the end of the error message. */
  readonly instead?: string
}

/**
 * Imports an optional package. `load` is `() => import('the-name')`, with the name as a literal: a bundler finds it,
 * and a package that is not installed fails here, in the program, and not in the bundler.
 */
export async function importPackage(wanted: OptionalPackage, load: () => Promise<unknown>): Promise<unknown> {
  try {
    return await load()
  } catch (error) {
    throw cannotLoad(wanted, error)
  }
}

/** The error for a package that is not installed, or that is installed but cannot be loaded: the remedies differ. */
export function cannotLoad(
  { name, neededBy, install = name, instead = '' }: OptionalPackage,
  cause: unknown,
): MillraceError {
  const installed = !isNotFound(name, cause)
  const [reason] = describeError(cause).message.split('\n')
  const message = installed
    ? `${neededBy} needs the package '${name}', which is there and could not be loaded (${reason}). If the program is bundled, keep '${name}' out of the bundle and install it beside it: external: ['${name}'] in esbuild, Rollup and Vite, serverExternalPackages: ['${name}'] in Next.`
    : `${neededBy} needs the package '${name}'. Install it: npm install ${install}`
  return new MillraceError('MISSING_DRIVER', `${message}${instead}`, { cause, details: { package: name, installed } })
}

/** Whether an import failed because there is no such package, and not because of its contents. */
function isNotFound(name: string, error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error.message.startsWith(`Could not resolve "${name}"`)) return true // Vite's stub for an optional peer
  const { code } = error as { code?: unknown }
  return (code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND') && error.message.includes(`'${name}'`)
}
