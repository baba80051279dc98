// worker/attempt/awaited.ts: promises of calls by handlers, which may not wait for them.

/** A promise that tells when somebody waits for it. Those who do not are not brought down by it. */
export class AwaitedPromise<T> extends Promise<T> {
  /** What `then` and the like make are promises like any other. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }

  readonly #heard: () => void
  readonly #follows: boolean
  #ending = false

  /** `follows`: with `.then(f)` alone nobody waits yet, but may for what that gives. */
  constructor(
    work: (resolve: (value: T) => void, reject: (error: unknown) => void) => void,
    heard: () => void,
    follows: boolean,
  ) {
    super(work)
    this.#heard = heard
    this.#follows = follows
    super.then(undefined, () => {})
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise, and hears who waits for it
  override then<A = T, B = never>(
    done?: ((value: T) => A | PromiseLike<A>) | null,
    failed?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const next = super.then(done, failed)
    if (this.#ending) return next
    if (!this.#follows || typeof failed === 'function') {
      this.#heard()
      return next
    }
    return this.#followed(next)
  }

  override finally(then?: (() => void) | null): Promise<T> {
    if (!this.#follows) return super.finally(then)
    this.#ending = true // it calls `then` with both, though nobody waits for it
    const next = super.finally(then)
    this.#ending = false
    return this.#followed(next)
  }

  #followed<A>(next: Promise<A>): Promise<A> {
    return new AwaitedPromise<A>((resolve, reject) => void next.then(resolve, reject), this.#heard, true)
  }
}
