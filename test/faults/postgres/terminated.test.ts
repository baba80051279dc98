// An administrator ends our connections, all of them, again and again.
import { expect, test } from 'vitest'
import { newDatabase } from '../../stores/postgres/server/shared.js'
import { scene } from '../processes.js'
import { busyRun, endBackends } from './busy-run.js'

const path = scene()

test(
  'backends that are terminated ten times under load cost no job, no settlement and no effect',
  { timeout: 120_000 },
  async () => {
    const url = await newDatabase()
    const run = await busyRun({ url, ledger: path('ledger') })
    let ended = 0
    for (let round = 0; round < 10; round++) {
      await run.more(100)
      ended += await endBackends(url)
    }
    expect(ended).toBeGreaterThan(10)
    await run.more(100)
    await run.finish()
  },
)
