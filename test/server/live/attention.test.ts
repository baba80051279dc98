// What of a queue needs attention, by its health.
import { expect, it } from 'vitest'
import type { QueueHealth } from 'millrace'
import { attentionOf } from '../../../src/server/live/attention.js'

const none = { waiting: 0, delayed: 0, 'waiting-children': 0, active: 0, completed: 0, failed: 0, cancelled: 0 }
const well: QueueHealth = {
  queue: 'a b',
  at: 0,
  paused: false,
  counts: none,
  holds: [],
  atLimit: [],
  workers: 1,
  slots: 1,
  names: {},
}
const name = { counts: { ...none, waiting: 7 }, paused: false, workers: 0, oldestWaiting: 90_000 }

it('nothing does of a queue that is well', () => {
  expect(attentionOf(well, { failed: 0, within: 60_000 })).toEqual([])
  expect(attentionOf({ ...well, paused: true }, undefined)).toEqual([])
  expect(attentionOf({ ...well, names: { send: { ...name, workers: 1 } } }, undefined)).toEqual([])
  expect(attentionOf({ ...well, names: { send: { ...name, paused: true } } }, undefined)).toEqual([])
  expect(attentionOf({ ...well, names: { send: { ...name, oldestWaiting: 9_999 } } }, undefined)).toEqual([])
})

it.each([
  ['failing', well, '12 jobs failed for good within 10 min.'],
  ['no-worker', { ...well, names: { send: name } }, "No live worker handles 'send': 7 wait, the oldest for 90 s."],
  ['schedule-late', { ...well, scheduleLag: 240_000 }, 'A schedule is 4 min late: no upkeep'],
  ['upkeep-late', { ...well, upkeepLag: 7_200_000 }, 'What is due has not been handled for 2 h'],
  ['paused', { ...well, paused: true, counts: { ...none, waiting: 3 } }, 'The queue is paused, and 3 jobs wait.'],
  ['late', { ...well, oldestWaiting: 600_000 }, 'The oldest job has waited for 10 min.'],
  [
    'at-limit',
    { ...well, oldestWaiting: 600_000, atLimit: [{ of: 'queue', what: 'concurrency', used: 100, max: 100 }] },
    'It is at its limit: concurrency 100 of 100.',
  ],
] as const)('%s', (kind, health, text) => {
  const [item, ...more] = attentionOf(health, kind === 'failing' ? { failed: 12, within: 600_000 } : undefined)
  expect(more).toEqual([])
  expect(item).toMatchObject({ kind, queue: 'a b', text: expect.stringContaining(text) })
  expect(item!.remedy.path).toMatch(/^\/v1\/(workers|queues\/a%20b)/)
})

it('at most five names are listed of one queue', () => {
  const names = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`name-${n}`, name]))
  expect(attentionOf({ ...well, names }, undefined).length).toBeLessThanOrEqual(6)
})
