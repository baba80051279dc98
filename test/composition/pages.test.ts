// Lists that may be long are to be had by page: schedules, and the jobs of a chain.
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import { closing } from '../setup.js'
import { kinds, stores } from './stores.js'

const make = stores()

describe.each(kinds)('on %s', (kind) => {
  test('schedules by page neither skip nor repeat one, whatever is made or taken away meanwhile', async () => {
    const queue = closing(new Queue('paged', { store: await make(kind), logger: false }))
    const keys = Array.from({ length: 7 }, (_, n) => `k${n}`)
    for (const key of keys) await queue.schedule(key, { every: '1h', name: 'n' })
    await queue.add('n')
    const seen: string[] = []
    let page = await queue.schedules({ limit: 3 })
    for (; page.cursor !== undefined; page = await queue.schedules({ limit: 3, cursor: page.cursor })) {
      seen.push(...page.schedules.map(({ key }) => key))
      if (seen.length === 3) {
        await queue.unschedule('k1')
        await queue.schedule('k7', { every: '1h', name: 'n' })
      }
    }
    seen.push(...page.schedules.map(({ key }) => key))
    expect(seen).toEqual([...keys, 'k7'])
    expect(page.schedules[0]!.next).toHaveLength(5)
    expect((await queue.schedules()).map(({ key }) => key)).toEqual(seen.filter((key) => key !== 'k1'))
    await expect(queue.schedules({ limit: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.schedules({ cursor: 'x' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(queue.schedules({ page: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  })

  test('the jobs of a chain by page, in its order, asked for by any of them', async () => {
    const queue = closing(new Queue('paged', { store: await make(kind), logger: false }))
    closing(
      new Worker(
        queue,
        (job, ctx) =>
          ctx.complete(async ({ continueWith }) => {
            const left = job.data as number
            if (left > 0) await continueWith('n', left - 1)
          }),
        { logger: false },
      ),
    )
    const first = await queue.add('n', 4)
    await queue.chain(first).result()
    const one = await queue.chain(first).jobs({ limit: 2 })
    expect(one.jobs.map(({ data }) => data)).toEqual([4, 3])
    const two = await queue.chain(one.jobs[1]!.id).jobs({ limit: 10, cursor: one.cursor! })
    expect(two.jobs.map(({ data }) => data)).toEqual([2, 1, 0])
    expect(two.cursor).toBeUndefined()
    expect(await queue.chain(first).jobs()).toHaveLength(5)
    await expect(queue.chain(first).jobs({ limit: 5000 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('what cannot be removed says how many wait, and lists no more than a page of them', async () => {
    const queue = closing(new Queue('paged', { store: await make(kind), logger: false }))
    const job = await queue.add('n')
    await queue.addBulk(Array.from({ length: 1005 }, () => ({ name: 'n', options: { after: job.id } })))
    for (const removal of [() => job.remove(), () => queue.chain(job).remove()]) {
      const error = (await removal().catch((thrown: unknown) => thrown)) as { code: string; details: object }
      expect(error).toMatchObject({ code: 'JOB_HAS_DEPENDENTS', details: { count: 1005 } })
      expect((error.details as { dependents: string[] }).dependents).toHaveLength(1000)
    }
    const many = (await queue.list({ limit: 1000 })).jobs.slice(1, 31)
    const all = await queue.add('n', 1, { after: many })
    expect((await queue.explain(all.id)).text).toMatch(/ and 20 more\.$/)
  })
})
