// store/packages.ts: optional packages, imported when first used, with an error that says what to do if one cannot be.
import { MillraceError } from '../job/errors.js'
import { describeError } from '../job/failure.js'

/** An optional package. */
export interface OptionalPackage {
  readonly name: string
  /** What needs it, at the beginning of the error's sentence. */
  readonly neededBy: string
  /** What to install: its name, with a version if any one will not do. */
  readonly install?: string
  /** What could be done instead. */
  readonly instead?: string
}

/**
 * Imports an optional package. `load` is `() => import('the-name')`, with the name as a literal: a bundler finds it, and a
 * package that is not installed fails here, in the program, and not in the bundler.
 */
export async function importPackage(wanted: OptionalPackage, load: () => Promise<unknown>): Promise<unknown> {
  try {
    return await load()
  } catch (error) {
    throw cannotLoad(wanted, error)
  }
}

/** The error for a package that is not installed, or that is and cannot be loaded: the ways out differ. */
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

/** Whether an import failed because there is no such package, and not because of what is in it. */
function isNotFound(name: string, error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error.message.startsWith(`Could not resolve "${name}"`)) return true // what Vite puts in the place of an optional peer
  const { code } = error as { code?: unknown }
  return (code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND') && error.message.includes(`'${name}'`)
}
