// The page of examples/streaming in a real browser: its EventSource moves the bars, and comes back where it was.
import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Queue } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { serve } from '../../examples/streaming/server.js'
import { open } from '../queue/events/read-sse.js'
import { closing, gate, mailbox, newWorker } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'
import { startChromium } from './chromium.js'
import type { Browser } from './chromium.js'

const file = freshFolder()
let browser: Browser
let server: Server

beforeEach(() => {
  browser = startChromium()
})

afterEach(async () => {
  await browser.close()
  server.closeAllConnections()
  server.close()
})

/** The server of the example, and the requests of browsers for the stream. */
async function serving(queue: Queue): Promise<{ url: string; comers: { next(): Promise<string | undefined> } }> {
  const comers = mailbox<string | undefined>()
  server = serve(queue)
  server.on('request', ({ url, headers }) => {
    if (url === '/events') comers.put(headers['last-event-id'] as string | undefined)
  })
  server.listen(0)
  await once(server, 'listening')
  return { url: `http://localhost:${(server.address() as AddressInfo).port}`, comers }
}

test(
  'a browser shows live progress, and misses nothing when its connection is lost',
  { timeout: 120_000 },
  async () => {
    const queue = closing(new Queue('films', { store: closing(sqlite(file('films.db'))), logger: false }))
    const steps = [gate(), gate(), gate()]
    newWorker(queue, {
      encode: async (_job, ctx) => {
        await steps[0]!.promise
        await ctx.progress(40)
        await steps[1]!.promise
        for (let percent = 41; percent <= 90; percent++) await ctx.progress(percent)
        await steps[2]!.promise
      },
    })
    const { url, comers } = await serving(queue)
    const all = open(queue, { events: ['waiting', 'active', 'progress', 'completed'] })
    await all.event('snapshot')

    const page = await browser.open(url)
    expect(await comers.next()).toBeUndefined()
    await page.until("document.querySelector('#counts')?.textContent.includes('0 were done')")
    await page.evaluate("document.querySelector('#add').click()")
    await page.until("document.querySelector('.state')?.textContent === 'active'")
    steps[0]!.open()
    await page.until("document.querySelector('progress').value === 40")

    // The connection is cut, and more happens before the browser has come back.
    const before = await page.evaluate<string[]>('seen')
    server.closeAllConnections()
    steps[1]!.open()
    const ninety = (await all.until(({ data }) => data?.progress === 90)).map(({ id }) => id!)
    expect(await comers.next()).toBe(before.at(-1))
    await page.until("document.querySelector('progress').value === 90")
    steps[2]!.open()
    await page.until("document.querySelector('.state').textContent === 'completed'")
    const last = await all.event('completed')
    expect(await page.evaluate<string[]>('seen')).toEqual([...ninety, last.id])
  },
)
