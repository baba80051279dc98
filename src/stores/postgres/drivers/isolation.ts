// stores/postgres/drivers/isolation.ts: requires connections that begin transactions at read committed: at other levels a
// statement does not see what was committed while it waited.
import { MillraceError } from '../../../job/errors/errors.js'
import type { Driver } from './driver.js'

const NEEDED = 'read committed'

/** Whether connections use the required isolation level. */
export async function isReadCommitted(driver: Driver): Promise<boolean> {
  return (await levelOf(driver)) === NEEDED
}

/** Returns the driver; throws if the user's connections use another isolation level. */
export async function needReadCommitted<Native>(driver: Driver<Native>): Promise<Driver<Native>> {
  const level = await levelOf(driver)
  if (level === NEEDED) return driver
  throw wrongLevel(level)
}

/** A URL whose connections use the required level, whatever is configured for the database or the role. */
export function atReadCommitted(url: string): string {
  const target = new URL(url)
  const own = target.searchParams.get('options')
  const settings = `-c default_transaction_isolation=${NEEDED.replace(' ', '\\ ')}`
  target.searchParams.set('options', own === null ? settings : `${own} ${settings}`)
  return target.href
}

/** The error for connections at another isolation level. */
export function wrongLevel(level: string, cause?: unknown): MillraceError {
  return new MillraceError(
    'INVALID_OPTION',
    `Connections begin transactions at the isolation level '${level}', and Millrace needs ${NEEDED}. Set default_transaction_isolation for the database, the user, or the pool.`,
    { cause },
  )
}

async function levelOf(driver: Pick<Driver, 'call'>): Promise<string> {
  const text = `select current_setting('default_transaction_isolation')`
  return (await driver.call({ name: '', text, values: [] })) ?? ''
}
