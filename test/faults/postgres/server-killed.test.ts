// The server dies and comes back, again and again, in the middle of a busy run.
import { afterEach, expect, test } from 'vitest'
import type { Server } from '../../stores/postgres/server/server.js'
import { ownServer } from '../../stores/postgres/server/shared.js'
import { scene } from '../processes.js'
import { busyRun } from './busy-run.js'

const path = scene()
let server: Server | undefined

afterEach(async () => {
  await server?.close()
  server = undefined
})

test(
  'a server that is killed five times under load costs no job, no settlement and no effect',
  { timeout: 180_000 },
  async () => {
    server = await ownServer()
    const run = await busyRun({ url: server.url, ledger: path('ledger') })
    for (let kill = 0; kill < 5; kill++) {
      await run.more(200)
      const trouble = run.trouble('STORE_UNAVAILABLE')
      await server.kill()
      await server.start() // before anybody gives up: what was sent is sent again
      expect((await trouble).message).toMatch(/The postgres store (failed|did not answer)/)
    }
    await run.more(200)
    await run.finish()
  },
)
