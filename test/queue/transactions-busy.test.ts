// Within a transaction, a call waits a moment for a row that another transaction locks; a longer lock is reported.
import type { Client } from 'pg'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { Job, Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { observed } from '../observed-store.js'
import { newDatabase } from '../stores/postgres/server/shared.js'
import { connected } from '../stores/postgres/server/clients.js'
import { closing, gate } from '../setup.js'

let url = ''
beforeAll(async () => {
  url = await newDatabase()
})

/** Verdicts on what was sent within transactions, batch by batch. */
let verdicts: string[][]
/** Opens when something was refused as busy. */
let busy: ReturnType<typeof gate<void>>
let queue: Queue
let added: Job
/** Another transaction, which locks the job. */
let theirs: Client

beforeEach(async () => {
  verdicts = []
  busy = gate()
  const store: Store = closing(postgres(url))
  const observedStore: Store = {
    ...observed(store, () => {}),
    commit: async (batch, tx) => {
      const receipt = await store.commit(batch, tx)
      if (tx === undefined) return receipt
      verdicts.push(receipt.groups.map((verdict) => (verdict.ok ? 'landed' : verdict.why)))
      if (verdicts.at(-1)!.includes('busy')) busy.open()
      return receipt
    },
  }
  queue = closing(new Queue('work', { store: observedStore, logger: false }))
  added = await queue.add('held', 1)
  theirs = await connected(url)
  await theirs.query('begin')
  await theirs.query('select 1 from millrace.job where id = $1 for update', [added.id])
})

describe('inside queue.transaction', () => {
  it('a call waits for a row that is released, and then succeeds', async () => {
    const cancelling = queue.transaction(() => queue.cancel(added.id))
    await busy.promise
    await theirs.query('rollback')
    expect(await cancelling).toBe(true)
    expect(await added.refresh()).toMatchObject({ state: 'cancelled' })
    expect(verdicts[0]).toEqual(['busy'])
    expect(verdicts.at(-1)).toEqual(['landed'])
  })

  it('of several jobs only the one that is held is sent again', async () => {
    const free = await queue.add('held', 2)
    const cancelling = queue.transaction(() => queue.cancel({ name: 'held' }))
    await busy.promise
    await theirs.query('rollback')
    expect(await cancelling).toBe(2)
    expect(await free.refresh()).toMatchObject({ state: 'cancelled' })
    expect(verdicts[0]!.toSorted()).toEqual(['busy', 'landed'])
    expect(new Set(verdicts.slice(1).map((each) => each.length))).toEqual(new Set([1]))
  })

  it('a row that stays locked is reported with the way out, and the transaction may go on', async () => {
    await queue.transaction(async () => {
      await expect(queue.cancel(added.id)).rejects.toMatchObject({
        code: 'STORE_BUSY',
        message: `Job ${added.id} is held by another open transaction. Roll this one back and try again.`,
        details: { id: added.id },
      })
      await queue.add('beside', 1)
    })
    expect(verdicts.filter(([verdict]) => verdict === 'busy').length).toBeGreaterThan(5)
    expect((await queue.list({ name: 'beside' })).jobs).toHaveLength(1)
    await theirs.query('rollback')
    expect(await added.cancel()).toBe(true)
  })

  it('a call whose transaction ends while it waits for a row does not write later', async () => {
    let late: Promise<unknown> | undefined
    await queue.transaction(async () => {
      late = queue.cancel(added.id)
      late.catch(() => {})
      await busy.promise
    })
    await expect(late).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    await theirs.query('rollback')
    expect(await added.refresh()).toMatchObject({ state: 'waiting' })
  })
})
