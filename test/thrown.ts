// What a call threw, as a value to look at.

/** Runs the call and answers the error it throws; a call that does not throw an Error is itself an error. */
export function thrown(call: () => unknown): Error {
  try {
    call()
  } catch (error) {
    if (error instanceof Error) return error
    throw new Error(`threw ${String(error)}, which is no Error`, { cause: error })
  }
  throw new Error('did not throw')
}
