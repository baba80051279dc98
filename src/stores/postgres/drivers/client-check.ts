// stores/postgres/drivers/client-check.ts: how the server finds out that a client is gone whose statement waits for somebody's lock: it
// would not look before the lock is released, and hold all that the transaction has locked until then.
import { isMillraceError } from '../../../job/errors.js'
import type { Driver } from './driver.js'
import { isServerError } from '../errors.js'

/** Has the server look every second, until the transaction ends. */
export const CLIENT_CHECK = `set_config('client_connection_check_interval', '1s', true)`

/** Finds out whether transactions should begin so: not where a server cannot, and not where somebody has set it already. */
export function clientCheck(call: Driver['call']): () => Promise<boolean> {
  const text = `select case current_setting('client_connection_check_interval') when '0' then ${CLIENT_CHECK} end`
  let known: boolean | undefined
  return async () => {
    if (known !== undefined) return known
    try {
      known = (await call({ name: '', text, values: [] })) !== null
    } catch (error) {
      if (isMillraceError(error)) throw error // there is no connection to be had, for a transaction either
      if (!isServerError(error)) return false // there was no answer: the next call finds out
      known = false
    }
    return known
  }
}
