// stores/postgres/drivers/client-check.ts: lets the server detect a lost client while its statement waits for a lock. By
// default the server does not check before the lock is released, and keeps everything that the transaction has locked
// until then.
import { isMillraceError } from '../../../job/errors/errors.js'
import type { Driver } from './driver.js'
import { isServerError } from '../errors.js'

/** Makes the server check the client every second, until the transaction ends. */
export const CLIENT_CHECK = `set_config('client_connection_check_interval', '1s', true)`

/**
 * Finds out whether transactions should enable the check: not if the server does not support it, and not if it is
 * configured already.
 */
export function clientCheck(call: Driver['call']): () => Promise<boolean> {
  const text = `select case current_setting('client_connection_check_interval') when '0' then ${CLIENT_CHECK} end`
  let enabled: boolean | undefined
  return async () => {
    if (enabled !== undefined) return enabled
    try {
      enabled = (await call({ name: '', text, values: [] })) !== null
    } catch (error) {
      if (isMillraceError(error)) throw error // no connection is available, for a transaction either
      if (!isServerError(error)) return false // no answer: the next call tries again
      enabled = false
    }
    return enabled
  }
}
