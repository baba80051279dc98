// queue/flows/awaited.ts: promises that detect whether a user's callback awaits them.

/** A promise that calls back when it is awaited. One that is not awaited causes no unhandled rejection. */
export class AwaitedPromise<T> extends Promise<T> {
  /** `then` and the like return ordinary promises. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }

  readonly #onAwait: () => void
  readonly #follows: boolean
  #ending = false

  /** `follows`: a `.then(f)` alone does not count as awaiting; awaiting its result does. */
  constructor(
    work: (resolve: (value: T) => void, reject: (error: unknown) => void) => void,
    onAwait: () => void,
    follows: boolean,
  ) {
    super(work)
    this.#onAwait = onAwait
    this.#follows = follows
    super.then(undefined, () => {})
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise, and detects who awaits it
  override then<A = T, B = never>(
    done?: ((value: T) => A | PromiseLike<A>) | null,
    failed?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const next = super.then(done, failed)
    if (this.#ending) return next
    if (!this.#follows || typeof failed === 'function') {
      this.#onAwait()
      return next
    }
    return this.#followed(next)
  }

  override finally(then?: (() => void) | null): Promise<T> {
    if (!this.#follows) return super.finally(then)
    this.#ending = true // it calls `then` with both callbacks, although nothing awaits the result yet
    const next = super.finally(then)
    this.#ending = false
    return this.#followed(next)
  }

  #followed<A>(next: Promise<A>): Promise<A> {
    return new AwaitedPromise<A>((resolve, reject) => void next.then(resolve, reject), this.#onAwait, true)
  }
}
