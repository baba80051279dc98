// The real world, as far as a test may look at it.
import { expect, it } from 'vitest'
import { systemRuntime } from '../../src/store/runtime.js'

it('a timer in the background lets the process end, and any other does not', () => {
  const { timer } = systemRuntime()
  const keeping = (): number => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length
  const before = keeping()
  const stops = [timer(1_000_000, () => {}, true)]
  expect(keeping()).toBe(before)
  stops.push(timer(1_000_000, () => {}))
  expect(keeping()).toBe(before + 1)
  for (const stop of stops) stop()
  expect(keeping()).toBe(before)
})
