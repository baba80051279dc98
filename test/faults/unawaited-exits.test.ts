// Functions that a handler does not await, in which its job is left: the process must survive them.
import { expect, it } from 'vitest'
import type { ForgetfulInput, ExitMessage } from './programs/unawaited-exits.js'
import { scene, start } from './processes.js'

scene()

it('a job that is left in a function that its handler does not await fails or is reported, and the process lives', async () => {
  const program = start<ExitMessage>('unawaited-exits', {} satisfies ForgetfulInput)
  const { jobs, reported } = await program.received('ended')
  const refused = 'failed NOT_AWAITED 1'
  expect(jobs).toEqual({
    sleep: refused,
    waitForSignal: refused,
    snooze: refused,
    waitFor: refused,
    late: expect.stringContaining('delayed') as string,
    throws: 'completed  2',
  })
  expect(reported).toEqual([expect.stringContaining("ctx.sleep('a while')")])
  expect(await program.finish()).toMatchObject({ code: 0 })
})

it('an unhandled rejection of the program itself still ends it', async () => {
  const program = start<ExitMessage>('unawaited-exits', { rejects: true } satisfies ForgetfulInput)
  await program.received('ended')
  const { code, stderr } = await program.ended
  expect(code).toBe(1)
  expect(stderr).toContain('of the program itself')
})
