// A context for unit tests of one handler: it records what the handler does, and refuses what it cannot do.
import { describe, expect, it } from 'vitest'
import { MillraceError, defineJobs, job } from 'millrace'
import type { HandlerOf } from 'millrace'
import { testContext } from 'millrace/testing'
import { z } from 'zod'
import { jobs } from './jobs.js'

const declared = defineJobs({
  ...jobs,
  report: job<{ day: string }, number, string, ['sweep', 'publish']>({ after: ['sweep', 'publish'] }),
  checked: job({ input: z.object({ code: z.string() }).refine(async () => true) }),
  film: job({ phases: ['download', 'encode'] }),
})

const sendEmail: HandlerOf<typeof jobs, 'send-email'> = async ({ data, attempt }, { progress, log, step, add }) => {
  await progress(50)
  await log(`attempt ${attempt}`)
  const messageId = await step('send', () => `<1.${data.to}>`)
  await add('sweep', undefined, { delay: '1h' })
  await progress(100)
  return { messageId }
}

describe('testContext', () => {
  it('runs a handler without a queue, and records progress, logs, steps and added jobs', async () => {
    const ctx = testContext(jobs, 'send-email', { to: 'ann' }, { attempt: 2 })
    expect(await sendEmail(ctx.job, ctx)).toEqual({ messageId: '<1.ann>' })
    expect(ctx.recorded).toMatchObject({
      progress: [50, 100],
      logs: ['attempt 2'],
      steps: [{ name: 'send', result: '<1.ann>' }],
      added: [{ name: 'sweep', delay: 3_600_000, parentId: ctx.job.id }],
      continuation: undefined,
      snoozed: undefined,
    })
    expect(ctx.job).toMatchObject({ name: 'send-email', state: 'active', attempt: 2, attempts: 3 })
  })

  it('does not run steps again that are given, nor steps of the same name', async () => {
    const ctx = testContext(jobs, 'send-email', { to: 'ann' }, { steps: { send: 'as before' } })
    expect(await sendEmail(ctx.job, ctx)).toEqual({ messageId: 'as before' })
    expect(ctx.recorded.steps).toEqual([])
    let ran = 0
    const both = [1, 2].map(() => ctx.step('once', () => ++ran))
    expect(await Promise.all(both)).toEqual([1, 1])
    await expect(ctx.step('fails', () => Promise.reject(new Error('no')))).rejects.toThrow('no')
    expect(await ctx.step('fails', () => 'now')).toBe('now')
  })

  it('gives the data that the schema makes of it, and refuses what the schema refuses', () => {
    expect(testContext(jobs, 'resize', { width: 5 }).job.data).toEqual({ width: 5, unit: 'px' })
    expect(() => testContext(jobs, 'resize', { width: 'wide' } as never)).toThrow(
      expect.objectContaining({ code: 'INVALID_PAYLOAD' }) as Error,
    )
  })

  it('returns from sleeps at once, and has signals and dependencies from its options', async () => {
    const dependencies = [
      { id: '1', name: 'sweep', status: 'completed', result: 3 },
      { id: '2', name: 'publish', status: 'cancelled' },
    ] as const
    const ctx = testContext(
      declared,
      'report',
      { day: 'today' },
      { dependencies, signals: { go: { by: 'ann' }, late: new MillraceError('SIGNAL_TIMEOUT', 'late') } },
    )
    await ctx.sleep('nap', '1d')
    expect(await ctx.waitForSignal('go')).toEqual({ by: 'ann' })
    await expect(ctx.waitForSignal('late')).rejects.toMatchObject({ code: 'SIGNAL_TIMEOUT' })
    expect((await ctx.dependencies())[0].id).toBe('1')
    expect(ctx.recorded).toMatchObject({ sleeps: [{ name: 'nap', duration: 86_400_000 }], signals: ['go', 'late'] })
  })

  it('records the continuation of a chain, by its rules', async () => {
    const ctx = testContext(jobs, 'draft', { text: 'a' })
    await ctx.complete(({ continueWith }) => continueWith('publish', { text: 'b' }))
    expect(ctx.recorded.continuation).toMatchObject({ name: 'publish', data: { text: 'b' } })
    const other = testContext(jobs, 'draft', { text: 'a' })
    await expect(
      other.complete(({ continueWith }) => continueWith('sweep' as 'publish', { text: '' })),
    ).rejects.toMatchObject({
      code: 'WRONG_CONTINUATION',
    })
    await expect(ctx.complete(() => 1)).rejects.toMatchObject({ code: 'CALLED_OUT_OF_ORDER' })
  })

  it('passes a transaction to the callbacks', async () => {
    const written: string[] = []
    const tx = { query: (sql: string) => written.push(sql) }
    const ctx = testContext(jobs, 'sweep', undefined, { tx })
    await ctx.prepare({ mode: 'staged' }, (inside) => (inside.tx as typeof tx).query('select'))
    await ctx.complete((inside) => (inside.tx as typeof tx).query('insert'))
    expect(written).toEqual(['select', 'insert'])
    const own = testContext(jobs, 'sweep')
    await own.complete({ tx }, (inside) => inside.tx.query('update'))
    expect(written.at(-1)).toBe('update')
  })

  it('ends the handler where the real context does: on snooze and waitFor', async () => {
    const ctx = testContext(jobs, 'sweep')
    expect(() => ctx.snooze('5m')).toThrow('snoozed')
    expect(ctx.recorded.snoozed).toBe(300_000)
    const child = await ctx.add('publish', { text: '' })
    expect(() => ctx.waitFor(child)).toThrow('waits')
    expect(ctx.recorded.waitsFor).toEqual([child.id])
  })

  it('aborts its signal with a reason', () => {
    const ctx = testContext(jobs, 'sweep')
    expect(ctx.signal.aborted).toBe(false)
    ctx.abort('timeout')
    expect(ctx.signal.reason?.reason).toBe('timeout')
  })

  it('has what middleware adds', () => {
    expect(testContext(jobs, 'sweep', undefined, { extra: { account: 'a1' } }).account).toBe('a1')
  })

  it('refuses with a code what it cannot do without a queue, and names the way out', async () => {
    const ctx = testContext(declared, 'report', { day: '' })
    const code = 'TEST_UNSUPPORTED'
    await expect(ctx.waitForSignal('go')).rejects.toMatchObject({
      code,
      message: expect.stringContaining('signals') as string,
    })
    await expect(ctx.dependencies()).rejects.toMatchObject({ code })
    await expect(ctx.job.refresh()).rejects.toMatchObject({
      code,
      message: expect.stringContaining('job.refresh()') as string,
    })
    await expect(ctx.job.cancel()).rejects.toMatchObject({ code })
    await expect(ctx.job.update({ delay: '1s' })).rejects.toMatchObject({ code })
    await expect(ctx.job.result()).rejects.toMatchObject({ code })
    expect(() => ctx.job.observe()).toThrow('job.observe()')
    expect(() => testContext(declared, 'film')).toThrow(expect.objectContaining({ code }) as Error)
    expect(() => testContext(declared, 'checked', { code: '' })).toThrow(expect.objectContaining({ code }) as Error)
  })

  it('refuses what the real context refuses', async () => {
    const ctx = testContext(jobs, 'sweep')
    await expect(ctx.progress(new Date() as never)).rejects.toMatchObject({ code: 'INVALID_DATA' })
    await expect(ctx.step('s', () => new Map() as never)).rejects.toMatchObject({ code: 'INVALID_DATA' })
    await expect(ctx.add('nope' as 'sweep')).rejects.toMatchObject({ code: 'UNKNOWN_JOB' })
    await expect(ctx.add('resize', { width: 'x' } as never)).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
    expect(() => testContext(jobs, 'sweep', undefined, { step: {} } as never)).toThrow("did you mean 'steps'?")
  })
})
