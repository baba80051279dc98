// How much memory is in use, garbage aside.
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Collects garbage, more than once: what is finalized frees more. */
export async function collect(): Promise<void> {
  setFlagsFromString('--expose-gc')
  const run = runInNewContext('gc') as () => void
  for (let rounds = 0; rounds < 3; rounds++) {
    run()
    await setImmediate()
  }
}

/** The bytes that are in use, garbage aside. */
export async function inUse(): Promise<number> {
  await collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
