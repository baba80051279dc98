// Dates that have come: a job with one is added as waiting.
import { describe, expect, it } from 'vitest'
import { kinds, stores } from '../composition/stores.js'
import { event, newQueue } from '../setup.js'

const make = stores()

describe.each(kinds)('a job whose date has come when it is added, on %s', (kind) => {
  it('waits at once, and is never delayed', async () => {
    const queue = newQueue({ store: await make(kind) })
    const seen: string[] = []
    queue.on('waiting', ({ name }) => seen.push(`waiting ${name}`))
    queue.on('delayed', ({ name }) => seen.push(`delayed ${name}`))
    const last = event(queue, 'waiting', ({ name }) => name === 'last')
    const past = await queue.add('past', 1, { runAt: Date.now() - 60_000 })
    const old = await queue.add('old', 1, { runAt: new Date(0), group: 'ann' })
    const none = await queue.add('none', 1, { delay: 0 })
    const [bulk] = await queue.addBulk([{ name: 'bulk', options: { runAt: Date.now() - 1000 } }])
    const ahead = await queue.add('ahead', 1, { runAt: Date.now() + 600_000 })
    const near = await queue.add('near', 1, { runAt: Date.now() + 50_000 })
    await queue.add('last')
    await last
    expect([past, old, none, bulk, ahead, near].map((job) => job!.state)).toEqual([
      ...Array.from({ length: 4 }, () => 'waiting'),
      ...Array.from({ length: 2 }, () => 'delayed'),
    ])
    expect(seen).toEqual([
      'waiting past',
      'waiting old',
      'waiting none',
      'waiting bulk',
      'delayed ahead',
      'delayed near',
      'waiting last',
    ])
    expect(past.runAt).toBeUndefined()
  })
})
