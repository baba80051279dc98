// stores/postgres/drivers/timeout.ts: waits for an answer, but not for ever: a connection may be half open, and then none comes.
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'

/** No answer came in time: whoever asked has to find out what became of it. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

/** What was asked, or `NoAnswer` after so long. */
export function inTime<T>(asked: Promise<T>, patience: Millis, timer: Runtime['timer']): Promise<T> {
  let stop: Stop | undefined
  return new Promise<T>((resolve, reject) => {
    stop = timer(patience, () => reject(new NoAnswer(`PostgreSQL did not answer within ${patience} ms.`)))
    asked.then(resolve, reject)
  }).finally(() => stop?.())
}
