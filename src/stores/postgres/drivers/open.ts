// stores/postgres/drivers/open.ts: detects and opens the user's driver.
import { MillraceError } from '../../../job/errors/errors.js'
import type { Driver, DriverOptions } from './driver.js'
import { pgDriver } from './pg.js'
import { postgresJsDriver } from './postgres-js.js'
import { needReadCommitted } from './isolation.js'
import { refuseSmallPool } from './unreachable.js'

/** Opens the driver for a URL, a pool of `pg`, or a client of `postgres`. */
export async function openDriver(target: unknown, options: DriverOptions): Promise<Driver> {
  const { options: given } = (typeof target === 'string' ? {} : target) as { options?: { max?: unknown } }
  refuseSmallPool(typeof target === 'string' ? options.connections : given?.max)
  if (typeof target === 'string' || isPool(target)) return pgDriver(target as never, options)
  if (isPostgresJs(target)) return needReadCommitted(postgresJsDriver(target as never, options))
  throw invalidTarget(target)
}

/** Throws if the target is none of these. */
export function checkTarget(target: unknown): void {
  if (typeof target === 'string' ? /^postgres(ql)?:\/\//.test(target) : isPool(target) || isPostgresJs(target)) return
  throw invalidTarget(target)
}

/** Whether a value is a pool of `pg`. */
export function isPool(target: unknown): boolean {
  if (typeof target !== 'object' || target === null) return false
  const { query, connect, totalCount } = target as Record<string, unknown>
  return typeof query === 'function' && typeof connect === 'function' && typeof totalCount === 'number'
}

/** Whether a value is a client of `postgres`. */
function isPostgresJs(target: unknown): boolean {
  if (typeof target !== 'function') return false
  const { unsafe, begin, listen } = target as unknown as Record<string, unknown>
  return typeof unsafe === 'function' && typeof begin === 'function' && typeof listen === 'function'
}

function invalidTarget(target: unknown): MillraceError {
  const got = typeof target === 'string' ? 'this text' : `a value of type ${typeof target}`
  return new MillraceError(
    'INVALID_OPTION',
    `postgres() takes a URL that begins with postgres://, a Pool of 'pg', or a client of 'postgres'; it was given ${got}.`,
  )
}
