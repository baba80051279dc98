// stores/postgres/drivers/isolation.ts: commits need connections that begin transactions at read committed: at other levels a
// statement would not see what was committed while it waited.
import { MillraceError } from '../../../job/errors.js'
import type { Driver } from './driver.js'

const NEEDED = 'read committed'

/** Answers whether connections are at the level that is needed. */
export async function isReadCommitted(driver: Driver): Promise<boolean> {
  return (await levelOf(driver)) === NEEDED
}

/** Refuses connections that somebody else opens and that are at another level; answers the driver. */
export async function needReadCommitted<Native>(driver: Driver<Native>): Promise<Driver<Native>> {
  const level = await levelOf(driver)
  if (level === NEEDED) return driver
  throw wrongLevel(level)
}

/** The URL of connections that are at the level that is needed, whatever the database or the role says. */
export function atReadCommitted(url: string): string {
  const target = new URL(url)
  const own = target.searchParams.get('options')
  const settings = `-c default_transaction_isolation=${NEEDED.replace(' ', '\\ ')}`
  target.searchParams.set('options', own === null ? settings : `${own} ${settings}`)
  return target.href
}

/** How a user is told that connections are at another level. */
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
