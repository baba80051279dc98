// The rules of deliveries: which ends bring one along, and what is written down about it.
import { describe, expect, it } from 'vitest'
import type { Change, Insert } from '../../src/job/change.js'
import type { JobRecord, Webhook } from '../../src/job/job.js'
import { cancel, complete, drop, due, settle } from '../../src/job/lifecycle.js'
import { memoOf, writeMemo } from '../../src/job/memo.js'
import type { Delivery } from '../../src/job/webhooks.js'
import {
  DELIVERIES,
  deliveryPending,
  isSent,
  noteDelivery,
  redeliver,
  redeliveryAsked,
  wasAccepted,
} from '../../src/job/webhooks.js'
import { NOW, record } from './lifecycle.records.js'

const webhook: Webhook = {
  url: 'https://example.com/hook',
  on: ['completed', 'failed', 'cancelled'],
  attempts: 4,
  backoff: { type: 'fixed', delay: 5 },
  timeout: 1000,
}

function withWebhook(over: Partial<JobRecord> = {}): JobRecord {
  return record({ extras: { webhook }, ...over })
}

const active = withWebhook({
  state: 'active',
  attempt: 3,
  attempts: 3,
  worker: 'w',
  leaseUntil: NOW - 1,
  startedAt: 2000,
})

function deliveryIn(changes: unknown): Insert | undefined {
  return (changes as Change[]).find((each): each is Insert => each.kind === 'insert')
}

function dataOf(insert: Insert | undefined): Delivery {
  return JSON.parse(insert!.job.data!) as Delivery
}

describe('an end brings its delivery along, in the same group and after its own move', () => {
  const error = { name: 'Error', message: 'no', stack: 'at home' }
  it.each<[string, unknown, Delivery['event']]>([
    ['by its handler', settle(active, { kind: 'returned', result: '7', also: [] }), 'completed'],
    ['by a failure', settle(active, { kind: 'threw', error, retryable: false, retryIn: 0 }), 'failed'],
    ['by upkeep, where the lease ran out', due(active, NOW), 'failed'],
    [
      'by upkeep, where a dependency broke',
      due(withWebhook({ state: 'waiting-children', brokenAt: NOW - 1 }), NOW, [
        {
          dependent: 'job-1',
          chain: 'c',
          name: 'n',
          policy: 'fail',
          state: 'broken',
          result: undefined,
          error: undefined,
        },
      ]),
      'failed',
    ],
    ['by hand', cancel(withWebhook()), 'cancelled'],
    ['by a newer job', drop(withWebhook({ group: 'g' })), 'cancelled'],
    ['elsewhere', complete(withWebhook(), { kind: 'returned', result: '7', also: [] }), 'completed'],
  ])('%s', (_how, changes, event) => {
    const [first] = changes as Change[]
    expect(first).toMatchObject({ kind: 'move', to: event })
    const insert = deliveryIn(changes)!
    expect(insert.job).toMatchObject({ queue: DELIVERIES, name: 'mill', state: 'waiting', attempts: 5 })
    expect(dataOf(insert)).toMatchObject({ url: webhook.url, event, attempts: 4, timeout: 1000, job: { id: 'job-1' } })
    expect(insert.job.data).not.toContain('at home')
  })

  it('but not an end that is not delivered, and nothing that is no end', () => {
    expect(deliveryIn(cancel(withWebhook({ extras: { webhook: { ...webhook, on: ['failed'] } } })))).toBeUndefined()
    expect(deliveryIn(cancel(record()))).toBeUndefined()
    const again = { kind: 'threw', error: { name: 'E', message: '' }, retryable: true, retryIn: 5 } as const
    expect(deliveryIn(settle({ ...active, attempt: 1 }, again))).toBeUndefined()
    expect(deliveryIn(settle(active, { kind: 'snoozed', for: 5 }))).toBeUndefined()
  })

  it('also where the job is not to be kept, which then waits for it', () => {
    const changes = cancel(withWebhook({ keep: { cancelled: { deleteAfter: 0 } } })) as Change[]
    expect(changes.map((each) => (each.kind === 'move' ? each.to : each.kind))).toEqual([
      'cancelled',
      'insert',
      'release',
    ])
  })
})

describe('the id of a delivery', () => {
  const idOf = (job: JobRecord): string => deliveryIn(cancel(job))!.job.id

  it('is the same for the same end, and another for every other one', () => {
    const ids = [
      withWebhook(),
      withWebhook({ fence: 8 }),
      withWebhook({ id: 'job-2' }),
      withWebhook({ createdAt: 1001 }), // the same id, added anew
      withWebhook({ startedAt: 5 }),
    ].map(idOf)
    expect(new Set(ids).size).toBe(5)
    expect(idOf(withWebhook())).toBe(ids[0])
  })

  it('is never too long', () => {
    const long = 'x'.repeat(254)
    const [one, other] = [idOf(withWebhook({ id: `${long}1` })), idOf(withWebhook({ id: `${long}2` }))]
    expect(one).not.toBe(other)
    expect(one.length).toBe(255)
  })
})

describe('what is written down', () => {
  const done = withWebhook({ state: 'completed', fence: 8, finishedAt: 5000, result: '7' })
  const asked = { id: 'msg_2', at: 6000 }
  const entry = { id: 'msg_1', at: 5001, event: 'completed', url: webhook.url, attempt: 1 } as const
  const after = (job: JobRecord, changes: readonly Change[] | undefined): JobRecord => {
    const move = changes!.find((change) => change.kind === 'move')!
    return { ...job, fence: job.fence + 1, memo: move.set.memo }
  }

  it('is fenced by the current record, and keeps the rest of the memo', () => {
    const job = { ...done, memo: writeMemo({ phases: { a: { status: 'completed' } } }) }
    const note = noteDelivery(job, { entry, made: 5000, came: 'again' })!
    expect(note).toMatchObject([{ kind: 'move', id: 'job-1', fence: 8, to: 'completed', held: false }])
    expect(memoOf(after(job, note))).toEqual({ phases: { a: { status: 'completed' } }, deliveries: [entry] })
    expect(deliveryPending(after(job, note))).toBe(true)
  })

  it('records that the end was delivered, and which end', () => {
    const sent = after(done, noteDelivery(done, { entry, made: 5000, came: 'sent' }))
    expect([isSent(sent), deliveryPending(sent), wasAccepted(sent, 'msg_1'), wasAccepted(sent, 'msg_2')]).toEqual([
      true,
      false,
      true,
      false,
    ])
    const again = { ...sent, finishedAt: 6000 } // retried by hand, and ended once more
    expect([isSent(again), deliveryPending(again)]).toEqual([false, true])
    const changes = noteDelivery(again, { entry, made: 5000, came: 'sent' })
    expect(changes).toHaveLength(1) // of an end that is no longer the last, nothing is announced
    const late = after(again, changes)
    expect([isSent(late), deliveryPending(late)]).toEqual([false, true])
  })

  it('records that it was given up, until a delivery is requested again', () => {
    const error = { name: 'E', message: 'gone', stack: 'at home' }
    const note = noteDelivery(done, { entry: { ...entry, error: 'x'.repeat(999) }, made: 5000, came: 'gave-up', error })
    expect(note).toMatchObject([{ events: [{ type: 'webhook-failed' }] }, { kind: 'move' }])
    expect(JSON.stringify(note)).not.toContain('at home')
    const given = after(done, note)
    expect(memoOf(given).deliveries![0]!.error).toHaveLength(300)
    expect([isSent(given), deliveryPending(given), wasAccepted(given, 'msg_1')]).toEqual([false, false, false])
    const [held, insert] = redeliver(given, 'millrace:webhook:2', asked) as readonly [Change, Insert]
    expect(held).toMatchObject({ kind: 'move', to: 'completed', fence: 9 })
    expect(deliveryPending(after(given, [held]))).toBe(true)
    expect(insert.job.id).toBe('millrace:webhook:2')
    expect(dataOf(insert)).toMatchObject({ at: 5000, job: { result: 7 } })
  })

  it('records which deliveries were requested by hand and have not ended, of an end that was delivered before', () => {
    const sent = after(done, noteDelivery(done, { entry, made: 5000, came: 'sent' }))
    const first = after(sent, redeliver(sent, 'd', asked) as readonly Change[])
    const both = after(first, redeliver(first, 'e', { id: 'msg_3', at: 7000 }) as readonly Change[])
    const open = (job: JobRecord): unknown[] => [isSent(job), deliveryPending(job), redeliveryAsked(job)]
    expect([open(sent), open(first), open(both)]).toEqual([
      [true, false, undefined],
      [true, true, 6000],
      [true, true, 7000],
    ])
    const failed = after(both, noteDelivery(both, { entry: { ...entry, id: 'msg_3' }, made: 7000, came: 'again' }))
    expect(open(failed)).toEqual([true, true, 7000])
    const one = after(failed, noteDelivery(failed, { entry: { ...entry, id: 'msg_3' }, made: 7000, came: 'gave-up' }))
    expect(open(one)).toEqual([true, true, 6000])
    const none = after(one, noteDelivery(one, { entry: { ...entry, id: 'msg_2' }, made: 6000, came: 'sent' }))
    expect([open(none), memoOf(none)]).toEqual([[true, false, undefined], { ...memoOf(none), redeliveries: undefined }])
    expect(redeliveryAsked({ ...both, finishedAt: 8000 })).toBeUndefined() // they tell of an earlier end
  })

  it('is nothing where the job is not finished', () => {
    expect(noteDelivery(active, { entry, made: 5000, came: 'sent' })).toBeUndefined()
    expect(redeliver(active, 'd', asked)).toMatchObject({ denied: expect.stringContaining('active') })
    expect(redeliver(record({ state: 'completed' }), 'd', asked)).toMatchObject({
      denied: expect.stringContaining('webhook'),
    })
    expect(deliveryPending(active)).toBe(false)
    expect(deliveryPending(record({ state: 'completed', finishedAt: 1 }))).toBe(false)
  })
})
