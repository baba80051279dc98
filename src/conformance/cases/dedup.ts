// conformance/cases/dedup.ts: cases on dedup keys: one job holds a key at a time, or for a window.
import type { JobRecord } from '../../job/job.js'
import { has, must, present, same } from '../check.js'
import { first, second } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import { cancel, complete, refusedChange, fail, insert, remove, retry, failAndRetry } from '../changes.js'

const key = { key: 'report:42' }

const endings: Readonly<Record<string, (d: Driver, job: JobRecord) => Promise<unknown>>> = {
  completed: (d, job) => d.land(complete(job)),
  failed: (d, job) => d.land(fail(job)),
  cancelled: (d, job) => d.land(cancel(job)),
  removed: (d, job) => d.land(remove(job)),
}

/** Cases of dedup keys. */
export const dedup = area('dedup', {
  'a key that is taken refuses a second job with the existing one': async (h) => {
    const d = first(h)
    const existing = await d.add('work', { dedup: key })
    same(existing.dedup, key, 'a job carries its key')
    const verdict = await d.refuse(
      'duplicate',
      'a key is held by one job',
      insert('second', 'other', { queue: 'other', dedup: key }),
    )
    same(verdict.id, existing.id, 'a refusal as duplicate names the existing job')
    same(verdict.job, existing, 'a refusal as duplicate carries the existing job')
    must(!(await d.exists('second')), 'a duplicate is not added')
    await d.add('work', { dedup: { key: 'report:43' } })
    await d.add('work')
  },

  'a running, delayed or dependent job holds its key': async (h) => {
    const d = first(h)
    const running = await d.running('work', { dedup: { key: 'a' } })
    await d.add('work', { dedup: { key: 'b' }, run: { in: 60_000 } })
    await d.add('work', { dedup: { key: 'c' }, after: [running] })
    for (const taken of ['a', 'b', 'c']) {
      await d.refuse(
        'duplicate',
        `an unfinished job holds its key: ${taken}`,
        insert('x', 'work', { dedup: { key: taken } }),
      )
    }
    await d.land(failAndRetry(running, 60_000))
    await d.refuse(
      'duplicate',
      'a job that will be retried holds its key',
      insert('x', 'work', { dedup: { key: 'a' } }),
    )
  },

  ...Object.fromEntries(
    Object.entries(endings).map(([how, end]) => [
      `a key is free once its job is ${how}`,
      async (h) => {
        const d = first(h)
        const held = await d.running('work', { dedup: key })
        await end(d, held)
        const next = await d.add('work', { dedup: key })
        const verdict = await d.refuse(
          'duplicate',
          'the next job holds the key',
          insert('third', 'work', { dedup: key }),
        )
        same(verdict.id, next.id, 'the next job holds the key')
      },
    ]),
  ),

  'a window outlives its job and ends by the clock': async (h) => {
    const d = first(h)
    const windowed = { dedup: { key: 'w', window: 60_000 } }
    await d.land(complete(await d.running('work', windowed)))
    const verdict = await d.refuse('duplicate', 'a window outlives its job', insert('x', 'work', windowed))
    has(
      present(verdict.job, 'the finished job'),
      { id: 'first-1', state: 'completed' },
      'the refusal carries the finished job',
    )
    await h.advance(59_000)
    await d.refuse('duplicate', 'a window holds until its end', insert('x', 'work', { dedup: { key: 'w' } }))
    await h.advance(1_000)
    await d.land(insert('x', 'work', windowed))
  },

  'a window outlives the removal of its job': async (h) => {
    const d = first(h)
    const job = await d.add('work', { dedup: { key: 'w', window: 60_000 } })
    await d.land(remove(job))
    const verdict = await d.refuse(
      'duplicate',
      'a window outlives removal',
      insert('x', 'work', { dedup: { key: 'w' } }),
    )
    same(verdict.id, job.id, 'a removed job is still named')
    same(verdict.job, undefined, 'a removed job is not carried')
    await h.advance(60_000)
    await d.land(insert('x', 'work', { dedup: { key: 'w' } }))
  },

  'a retry by hand takes the key again': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: key })
    await d.land(fail(held))
    await d.land(retry(await d.job(held)))
    const verdict = await d.refuse('duplicate', 'a retried job holds its key', insert('x', 'work', { dedup: key }))
    same(verdict.id, held.id, 'a retried job holds its key')
  },

  'a retry by hand is refused while another job holds the key': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: key })
    await d.land(cancel(held))
    const existing = await d.add('work', { dedup: key })
    const before = await d.job(held)
    const verdict = await d.refuse('duplicate', 'a key is held by one job', retry(before))
    same(verdict.job, existing, 'the refusal of a retry carries the existing job')
    same(await d.job(held), before, 'a refused retry changes nothing')
    await d.land(complete(await d.claimOne()))
    await d.land(retry(before))
    has(await d.job(held), { state: 'waiting' }, 'a retry lands once the key is free')
  },

  'a refused retry by hand takes no key': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: key })
    await d.land(fail(held))
    await d.refuse(
      'missing',
      'a group with one impossible change is refused',
      retry(await d.job(held)),
      refusedChange(),
    )
    await d.add('work', { dedup: key })
  },

  'a refused settlement frees no key': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: key })
    for (const changes of [complete(held), remove(held)]) {
      await d.refuse('missing', 'a group with one impossible change is refused', changes, refusedChange())
      await d.refuse('duplicate', 'what was refused frees no key', insert('x', 'work', { dedup: key }))
    }
  },

  'removing a finished job does not free the key of its successor': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: key })
    await d.land(complete(held))
    const next = await d.add('work', { dedup: key })
    await d.land(remove(await d.job(held)))
    const verdict = await d.refuse('duplicate', 'the successor holds the key', insert('x', 'work', { dedup: key }))
    same(verdict.id, next.id, 'the successor holds the key')
  },

  'a group that takes one key twice is refused': async (h) => {
    const d = first(h)
    await d.refuse(
      'duplicate',
      'a key is held by one job',
      insert('a', 'work', { dedup: key }),
      insert('b', 'work', { dedup: key }),
    )
    await d.land(insert('c', 'work', { dedup: key }))
  },

  'a settlement frees the key for a job of its own group': async (h) => {
    const d = first(h)
    const held = await d.running('work', { dedup: key })
    const inserted = await d.land(complete(held, { also: [insert('again', 'work', { dedup: key })] }))
    same(inserted.length, 1, 'a job may add its own successor with its own key')
  },

  'two handles that add one key at the same moment: exactly one lands': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 30; round++) {
      const add = (by: Driver) => by.send([insert(by.id(), 'work', { dedup: { key: `k-${round}` } })])
      const verdicts = await Promise.all([add(d), add(other)])
      const landed = verdicts.flatMap((verdict) => (verdict.ok ? verdict.inserted : []))
      same(landed.length, 1, 'a key is taken by exactly one of two adds')
      const refused = verdicts.find((verdict) => !verdict.ok)
      must(refused?.ok === false && refused.why === 'duplicate', 'the other add is refused as duplicate')
      same(refused.job?.id, landed[0]?.id, 'the refusal of the other add carries the existing job')
    }
    same((await d.claim(100)).length, 30, 'each key was added once')
  },
})
