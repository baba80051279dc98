// Calls of ctx that fail in functions that a handler forgot: the process must survive them.
import { expect, it } from 'vitest'
import type { UnawaitedInput, UnawaitedMessage } from './programs/unawaited-calls.js'
import { scene, start } from './processes.js'

const path = scene()

/** The call that is reported of each job, and the code of its error. */
const expected = [
  'add: ctx.add LEASE_LOST',
  'addOfNoJson: ctx.add INVALID_DATA',
  'batchComplete: ctx.complete NOT_IN_BATCH',
  'batchPrepare: ctx.prepare NOT_IN_BATCH',
  'batchProgress: ctx.progress LEASE_LOST',
  'batchStep: ctx.step NOT_IN_BATCH',
  'complete: ctx.complete LEASE_LOST',
  'completeInNoTransaction: ctx.complete LEASE_LOST',
  'dependencies: ctx.dependencies INVALID_OPTION',
  'floatingAdd: ctx.add LEASE_LOST',
  'floatingComplete: ctx.complete LEASE_LOST',
  'floatingStep: ctx.step LEASE_LOST',
  'log: ctx.log LEASE_LOST',
  'phaseProgress: ctx.progress LEASE_LOST',
  'phaseProgressOfNoPercent: ctx.progress INVALID_OPTION',
  'phaseResult: ctx.phaseResult INVALID_OPTION',
  'prepare: ctx.prepare CALLED_OUT_OF_ORDER',
  'progress: ctx.progress LEASE_LOST',
  'progressOfNoJson: ctx.progress INVALID_DATA',
  'refused: ctx.progress DATA_TOO_LARGE',
  'signalWithoutName: ctx.waitForSignal INVALID_NAME',
  'sleepOfNoTime: ctx.sleep INVALID_DURATION',
  'snooze: ctx.snooze NOT_AWAITED',
  'snoozeForNoTime: ctx.snooze INVALID_DURATION',
  'step: ctx.step LEASE_LOST',
  'stepWithoutName: ctx.step INVALID_NAME',
  'stopped: ctx.signal AbortError',
  'throwingStep: ctx.step TypeError',
  'waitFor: ctx.waitFor NOT_AWAITED',
  'waitForNothing: ctx.waitFor INVALID_OPTION',
]

/** The codes that code gets which handles the errors itself, call by call. */
const caught =
  'LEASE_LOST INVALID_DATA LEASE_LOST LEASE_LOST INVALID_NAME INVALID_DURATION INVALID_NAME LEASE_LOST LEASE_LOST ' +
  'LEASE_LOST CALLED_OUT_OF_ORDER INVALID_OPTION INVALID_OPTION INVALID_DURATION'

it.each(['memory', 'sqlite'])(
  'a call of ctx that fails in a function that its handler forgot is reported, and the process lives: %s',
  async (kind) => {
    const given: UnawaitedInput = kind === 'sqlite' ? { path: path('jobs.db') } : {}
    const program = start<UnawaitedMessage>('unawaited-calls', given)
    const { reported, handled, completed } = await program.received('ended')
    expect(reported.toSorted()).toEqual(expected)
    expect(handled).toEqual(caught.split(' '))
    expect(completed).toHaveLength(expected.length) // all jobs but the cancelled one
    expect(await program.finish()).toMatchObject({ code: 0 })
  },
)
