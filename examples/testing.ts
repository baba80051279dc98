/* oxlint-disable typescript/no-floating-promises -- node:test awaits them */ // Tests of a producer and of its handlers, with node:test.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defineJobs, job } from 'millrace'
import type { HandlerOf, Queue } from 'millrace'
import { testContext, testQueue } from 'millrace/testing'

// The code under test: jobs, a producer and handlers.
const jobs = defineJobs({
  welcome: job<{ email: string }, { messageId: string }>({ attempts: 3, backoff: '10m' }),
  remind: job<{ email: string }>(),
})

async function signUp(queue: Queue<typeof jobs>, email: string): Promise<void> {
  await queue.add('welcome', { email })
  await queue.add('remind', { email }, { delay: '3d' })
}

let mailServerIsUp = true

const welcome: HandlerOf<typeof jobs, 'welcome'> = async ({ data }, ctx) => {
  await ctx.progress(50)
  if (!mailServerIsUp) throw new Error('421 try again later')
  const messageId = await ctx.step('send', () => `<1.${data.email}>`)
  return { messageId }
}

const handlers = { welcome, remind: () => {} }

// The tests.
test('signing up adds a welcome now and a reminder in three days', async () => {
  await using queue = testQueue(jobs)
  await signUp(queue, 'ann@example.com')
  assert.equal(queue.added('welcome', { email: 'ann@example.com' }).length, 1)
  assert.equal(queue.added('remind', {}, { delay: '3d' }).length, 1)
})

test('everything that signing up causes completes, three virtual days later', async () => {
  await using queue = testQueue(jobs, { handlers })
  await signUp(queue, 'ann@example.com')
  const { completed, failed } = await queue.drain({ advance: true })
  assert.deepEqual({ completed, failed }, { completed: 2, failed: 0 })
})

test('a welcome is retried ten minutes after the mail server was down', async () => {
  await using queue = testQueue(jobs, { handlers })
  const added = await queue.add('welcome', { email: 'ann@example.com' })
  mailServerIsUp = false
  const first = await queue.runOne(added)
  assert.equal(first.outcome, 'retrying')
  mailServerIsUp = true
  await queue.clock.advance('10m')
  assert.equal((await queue.drain()).completed, 1)
})

test('in inline mode, a job has run when add resolves', async () => {
  await using queue = testQueue(jobs, { handlers, inline: true })
  const sent = await queue.add('welcome', { email: 'ann@example.com' })
  assert.deepEqual(sent.returned, { messageId: '<1.ann@example.com>' })
})

test('the handler reports its progress, and sends once', async () => {
  const ctx = testContext(jobs, 'welcome', { email: 'ann@example.com' }, { attempt: 2, steps: { send: '<0>' } })
  assert.deepEqual(await welcome(ctx.job, ctx), { messageId: '<0>' })
  assert.deepEqual(ctx.recorded.progress, [50])
})
