// Workers killed in mid-work, again and again: no job is lost, and none is settled twice.
import { expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { closing } from '../setup.js'
import { checkFile, linesOf, repeated, soundAccountOf, states } from './account.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'
import type { Chore, WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()

const WORKERS = 3

test.each([
  ['50 workers', 50, {}],
  ['12 workers in the midst of batches', 12, { batch: 6 }],
] as const)(
  'every job is completed once, by one fence, while %s are killed under load',
  { timeout: 180_000 },
  async (_what, KILLS, more) => {
    /** More than a job can lose, so that none may fail. */
    const ATTEMPTS = KILLS + WORKERS + 2
    const store = closing(sqlite(path('jobs.db'), { ring: 1_000_000 }))
    const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: ATTEMPTS } }))
    const added: string[] = []
    const completed: string[] = []
    let kills = 0
    let finished = (): void => {}
    const allDone = new Promise<void>((resolve) => (finished = resolve))
    queue.on('completed', ({ id }) => {
      completed.push(id)
      if (kills === KILLS && completed.length >= added.length) finished()
    })
    const add = async (count: number): Promise<void> => {
      const chores = Array.from({ length: count }, () => ({ name: 'chore', data: { takes: 10 } satisfies Chore }))
      for (const { id } of await queue.addBulk(chores)) added.push(id)
    }

    const processes: Process<WorkerMessage>[] = []
    /** Works until it has reported some jobs as done, and dies while there are more kills to come. */
    const employ = async (): Promise<void> => {
      const worker = start<WorkerMessage>('worker', {
        path: path('jobs.db'),
        ledger: path('ledger'),
        worker: { concurrency: 4, lease: 2000, upkeepEvery: 500 },
        store: { ring: 1_000_000 },
        reportsEvery: 10,
        ...more,
      } satisfies WorkerInput)
      processes.push(worker)
      await Promise.race([worker.received('done'), allDone]) // the last ones may find little left to do
      if (kills === KILLS) return
      kills++
      // The queue never runs dry while workers die.
      await Promise.all([add(30), worker.kill()])
      await employ()
    }
    await add(200)
    await Promise.all(Array.from({ length: WORKERS }, employ))
    expect(kills).toBe(KILLS)
    if (completed.length < added.length) await allDone

    const alive = processes.filter((each) => each.alive)
    expect(alive.length).toBe(WORKERS)
    for (const end of await Promise.all(alive.map((each) => each.finish())))
      expect(end, end.stderr).toMatchObject({ code: 0 })

    expect(completed.toSorted()).toEqual(added.toSorted())
    const { jobs, tallies } = await soundAccountOf(store)
    expect(states(jobs)).toEqual({ completed: added.length })
    expect(jobs.map(({ id }) => id).toSorted()).toEqual(added.toSorted())
    expect(tallies[0]?.lifetime).toMatchObject({ added: added.length, completed: added.length, failed: 0 })

    const lines = linesOf(path('ledger'))
    const of = (verb: string): readonly string[] =>
      lines.filter(([first]) => first === verb).map(([, ...words]) => words.join(' '))
    expect(repeated(of('claimed'))).toEqual([])
    expect(repeated(of('settled').map((line) => line.split(' ')[0]!))).toEqual([])
    const ended = new Set(of('ended'))
    const fences = new Map(of('settled').map((line) => line.split(' ') as [string, string]))
    // One that was killed between its commit and its note could not write that down.
    const odd = jobs.filter(
      ({ id, attempt, worker, fence, errors }) =>
        !ended.has(`${id} ${attempt} ${worker}`) ||
        Number(fences.get(id) ?? fence - 1) !== fence - 1 ||
        errors.length > 0,
    )
    expect(odd).toEqual([])
    await queue.close()
    await store.close()
    expect(await checkFile(path('jobs.db'))).toEqual(['ok'])
  },
)
