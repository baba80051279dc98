// stores/postgres/drivers/timeout.ts: limits how long to wait for an answer: a half-open connection never answers.
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'

/** No answer came in time: the statement may or may not have been applied. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

/** The result of a promise; rejects with `NoAnswer` after a timeout. */
export function answerWithin<T>(promise: Promise<T>, timeout: Millis, timer: Runtime['timer']): Promise<T> {
  let stop: Stop | undefined
  return new Promise<T>((resolve, reject) => {
    stop = timer(timeout, () => reject(new NoAnswer(`PostgreSQL did not answer within ${timeout} ms.`)))
    promise.then(resolve, reject)
  }).finally(() => stop?.())
}
