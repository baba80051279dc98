// A full disk: a clear error, nothing by half, and work goes on once there is space.
import { copyFileSync, existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { sqlite } from '../../src/sqlite.js'
import { checkFile, linesOf, repeated, soundAccountOf, states } from '../faults/account.js'
import type { Account } from '../faults/account.js'
import type { AdderInput, AdderMessage } from '../faults/programs/add-and-work.js'
import { endAll, scene, start } from '../faults/processes.js'
import type { Process } from '../faults/processes.js'
import type { Chore, WorkerInput, WorkerMessage } from '../faults/programs/worker.js'
import { mountDisk } from './disk.js'
import type { Disk } from './disk.js'

const path = scene()

/** Gives the work a small disk, and takes that away again whatever comes of it. */
async function onSmallDisk(work: (disk: Disk) => Promise<void>): Promise<void> {
  const disk = mountDisk(path('disk'), 8)
  try {
    await work(disk)
  } finally {
    await endAll()
    disk.unmount()
  }
}

function adderOn(db: string): Process<AdderMessage> {
  return start<AdderMessage>('add-and-work', { path: db, ledger: path('added') } satisfies AdderInput)
}

/** Lets a program add a job; answers the codes of what went wrong, if anything did. */
async function add(adder: Process<AdderMessage>, id: string, data: Chore = {}): Promise<readonly string[]> {
  adder.send({ kind: 'add', id, data })
  const { error } = await adder.received('answer', (answer) => answer.id === id)
  return error?.codes ?? []
}

/** The account of a database as it lies on the disk now, from a copy: nothing here keeps the disk in use. */
async function accountOnDisk(db: string): Promise<Account> {
  for (const end of ['', '-wal']) if (existsSync(db + end)) copyFileSync(db + end, path(`copy.db${end}`))
  const store = sqlite(path('copy.db'))
  const account = await soundAccountOf(store)
  await store.close()
  expect(await checkFile(path('copy.db'))).toEqual(['ok'])
  return account
}

describe('on a full disk', { timeout: 60_000 }, () => {
  test('adds and settlements are refused whole, and all of it goes on once there is space', async () => {
    await onSmallDisk(async (disk) => {
      const db = disk.path('jobs.db')
      const adder = adderOn(db)
      const held = ['held-0', 'held-1', 'held-2']
      // What they come to takes far more space than any add.
      for (const id of held) expect(await add(adder, id, { held: true, returns: 100_000 })).toEqual([])
      const worker = start<WorkerMessage>('worker', {
        path: db,
        ledger: path('ledger'),
        worker: { concurrency: 3, reconnect: 100 },
      } satisfies WorkerInput)
      for (const id of held) await worker.received('started', (message) => message.id === id)

      disk.fill()
      const refused: string[] = []
      for (let n = 0; refused.length < 3; n++) {
        const codes = await add(adder, `during-${n}`)
        if (codes.length === 0) continue
        expect(codes[0]).toBe('DATABASE_FULL')
        refused.push(`during-${n}`)
      }
      for (const id of held) worker.send({ kind: 'let go', id })
      const { error } = await worker.received('error')
      expect(error.codes).toContain('DATABASE_FULL')
      expect([adder.alive, worker.alive]).toEqual([true, true])

      disk.free()
      for (const id of held) await worker.received('completed', (message) => message.id === id)
      expect(await add(adder, 'after')).toEqual([])
      await worker.received('completed', (message) => message.id === 'after')
      expect(await adder.finish()).toMatchObject({ code: 0 })
      expect(await worker.finish()).toMatchObject({ code: 0 })

      const { jobs } = await accountOnDisk(db)
      const acknowledged = linesOf(path('added')).map(([, id]) => id)
      expect(jobs.map(({ id }) => id)).toEqual(acknowledged)
      expect(acknowledged.filter((id) => refused.includes(id!))).toEqual([])
      expect(states(jobs)).toEqual({ completed: jobs.length })
      expect(jobs.filter(({ attempt, stalls }) => attempt !== 1 || stalls !== 0)).toEqual([])
      const began = linesOf(path('ledger')).filter(([verb]) => verb === 'began')
      expect(repeated(began.map(([, id]) => id!))).toEqual([])
      expect(began.length).toBe(jobs.length)
    })
  })

  test('a file that is to be made is refused, and made once there is space', async () => {
    await onSmallDisk(async (disk) => {
      disk.fill()
      const adder = adderOn(disk.path('jobs.db'))
      const { error } = await adder.received('error') // once; and it goes on trying
      expect(error.codes).toContain('DATABASE_FULL')
      expect((await add(adder, 'during'))[0]).toBe('DATABASE_FULL')
      disk.free()
      await adder.received('ready')
      expect(await add(adder, 'after')).toEqual([])
      expect(await adder.finish()).toMatchObject({ code: 0 })
      expect((await accountOnDisk(disk.path('jobs.db'))).jobs.map(({ id }) => id)).toEqual(['after'])
    })
  })

  test('a program that is killed there has lost nothing that was acknowledged', async () => {
    await onSmallDisk(async (disk) => {
      const db = disk.path('jobs.db')
      const adder = adderOn(db)
      await add(adder, 'before')
      disk.fill()
      for (let n = 0, refused = 0; refused < 3; n++) if ((await add(adder, `during-${n}`)).length > 0) refused++
      await adder.kill()
      const { jobs } = await accountOnDisk(db)
      expect(jobs.map(({ id }) => id)).toEqual(linesOf(path('added')).map(([, id]) => id))
      disk.free()
      const again = adderOn(db)
      await again.received('ready')
      expect(await add(again, 'after')).toEqual([])
      expect(await again.finish()).toMatchObject({ code: 0 })
    })
  })
})
