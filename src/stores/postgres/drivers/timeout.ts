// stores/postgres/drivers/timeout.ts: limits how long to wait for an answer: a half-open connection never answers.
// Imported, to be compared with the global one, which fake timers replace.
import { setImmediate } from 'node:timers'
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
    stop = timer(timeout, () => reject(new NoAnswer(`PostgreSQL did not answer within ${timeout} ms${fakeTimers()}.`)))
    promise.then(resolve, reject)
  }).finally(() => stop?.())
}

/** What drivers cannot work with, and a user would not look for. */
function fakeTimers(): string {
  if (globalThis.setImmediate === setImmediate) return ''
  return "; its driver waits for timers that are fake here: fake only what the test needs, as in toFake: ['Date']"
}
