// store/maybe-sync.ts: work in steps that continues at once where a result is already available. A synchronous
// transaction ends before the first turn of the event loop, so work inside it must not wait for one.

/** Results that were available when their promises were created. */
const results = new WeakMap<Promise<unknown>, { readonly value: unknown }>()

/** A promise whose result is already available. */
export function resolved<T>(value: T): Promise<T> {
  const promise = Promise.resolve(value)
  results.set(promise, { value })
  return promise
}

/** Work that waits for promises one after the other. */
export type Steps<T> = Generator<Promise<unknown>, T, unknown>

/** Waits for a promise within such work: `const job = yield* step(read())`. */
export function* step<T>(promise: Promise<T>): Steps<T> {
  return (yield promise) as T
}

/** Runs work, without waiting as long as results are available. */
export function runSteps<T>(work: Steps<T>): Promise<T> {
  try {
    let next = work.next()
    while (next.done !== true) {
      const known = results.get(next.value)
      if (known === undefined) return continueAsync(work, next.value)
      next = work.next(known.value)
    }
    return resolved(next.value)
  } catch (error) {
    return Promise.reject(error)
  }
}

async function continueAsync<T>(work: Steps<T>, first: Promise<unknown>): Promise<T> {
  let waited = first
  for (;;) {
    let next: IteratorResult<Promise<unknown>, T>
    try {
      next = work.next(await waited)
    } catch (error) {
      // Either the promise was rejected, which the work may handle, or the work has thrown and is over.
      next = work.throw(error)
    }
    if (next.done === true) return next.value
    waited = next.value
  }
}
