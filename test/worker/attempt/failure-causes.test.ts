// The cause of a job's failure: kept with it on every store, and contained in events, logs, webhooks and phases.
import { describe, expect, it } from 'vitest'
import { Queue, Worker, phases } from 'millrace'
import { webhooks } from 'millrace/webhooks'
import { kinds, stores } from '../../stores.js'
import { closing, event } from '../../setup.js'
import { receiver } from '../../features/webhooks/receiver.js'

const make = stores()

/** As `fetch` fails without a listener. */
function fetchFailed(): Error {
  const refused = Object.assign(new Error('connect ECONNREFUSED ::1:80'), { code: 'ECONNREFUSED' })
  return new TypeError('fetch failed', { cause: new AggregateError([refused], 'both refused') })
}

const refused = { name: 'Error', message: 'connect ECONNREFUSED ::1:80', code: 'ECONNREFUSED' }
const reported = { name: 'AggregateError', message: 'both refused', errors: [refused] }
const stack = expect.stringContaining('at fetchFailed') as string
const kept = { ...reported, stack, errors: [{ ...refused, stack }] }

describe.each(kinds)('the cause of a failure, on %s', (kind) => {
  it('is in the history of the job, in its events, in the log and in what result() rejects with', async () => {
    const logged: object[] = []
    const logger = { warn: () => {}, error: () => {}, info: (details: object) => logged.push(details) }
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const handlers = {
      n: () => {
        throw fetchFailed()
      },
    }
    closing(new Worker(queue, handlers, { logger }))
    const retrying = event(queue, 'retrying')
    const failed = event(queue, 'failed')
    const added = await queue.add('n', 1, { attempts: 2, backoff: 1 })
    const error: unknown = await added.result().catch((thrown: unknown) => thrown)
    expect((await retrying).error).toMatchObject({ message: 'fetch failed', cause: kept })
    expect((await failed).error).toMatchObject({ message: 'fetch failed', cause: kept })
    expect(error).toMatchObject({ code: 'JOB_FAILED', cause: { message: 'fetch failed', cause: kept } })
    const job = await added.refresh()
    expect(job.error?.cause).toEqual(kept)
    expect(job.errors.map(({ cause }) => cause)).toEqual([kept, kept])
    expect(logged).toMatchObject([{ err: { cause: kept } }, { err: { cause: kept } }])
  })

  it('is sent to webhooks and shown with phases, without stacks', async () => {
    const hook = await receiver()
    const webhook = webhooks({ url: hook.url, secret: 'a secret that nobody knows', allowPrivate: true })
    const queue = closing(new Queue('work', { store: await make(kind), logger: false, webhook }))
    const handlers = {
      n: phases({
        first: () => {
          throw fetchFailed()
        },
        second: () => {},
      }),
    }
    closing(new Worker(queue, handlers, { logger: false }))
    const added = await queue.add('n', 1, { attempts: 1 })
    const { body } = await hook.next()
    expect(JSON.parse(body)).toMatchObject({
      data: { error: { name: 'TypeError', message: 'fetch failed', cause: reported } },
    })
    expect(body).not.toContain('at fetchFailed')
    const { phases: shown } = await added.refresh()
    expect(shown['first']?.error).toEqual({ name: 'TypeError', message: 'fetch failed', cause: reported })
  })
})
