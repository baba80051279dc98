// What a worker that starts does about the jobs of the dead, with processes that are made up.
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { Store, Worker, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import type { WorkerCell } from '../../src/store/settings.js'
import { procfs } from '../../src/store/processes.js'
import type { Origin, Processes } from '../../src/store/processes.js'
import { systemRuntime } from '../../src/store/runtime.js'
import { orphaned } from '../../src/job/moves.js'
import { observed } from '../observed-store.js'
import { record } from '../job/lifecycle.records.js'
import { addActive, closing, event, gate, newWorker } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'

const origin = (start: string): Origin => ({ boot: 'boot', namespace: 'pid:[1]', pid: 7, start })

/** A machine whose processes the test defines. */
function machine(of: Store = memory()): {
  readonly killed: Set<string>
  /** The same store, as another process sees it. */
  readonly process: (name: string, queues?: string) => Queue
  readonly store: Store
} {
  const killed = new Set<string>()
  closing(of)
  return {
    killed,
    store: of,
    process: (name, queue = 'work') => {
      const processes: Processes = { self: () => origin(name), gone: ({ start }) => killed.has(start) }
      const runtime = { ...systemRuntime(), processes }
      return closing(new Queue(queue, { store: { ...observed(of, () => {}), runtime }, logger: false }))
    },
  }
}

/** A worker that dies: it never sends anything again. */
async function dying(queue: Queue, jobs: number, names = ['film']): Promise<Worker> {
  const started = gate()
  let count = 0
  const handler = (): Promise<never> => {
    if (++count === jobs) started.open()
    return new Promise(() => {})
  }
  const worker = newWorker(queue, Object.fromEntries(names.map((name) => [name, handler])), {
    lease: '10m',
    concurrency: jobs,
  })
  await worker.run()
  for (let n = 0; n < jobs; n++) await queue.add(names[n % names.length]!, n, { id: `${queue.name} ${n}` })
  await started.promise
  return worker
}

async function cells(store: Store): Promise<readonly WorkerCell[]> {
  const { cells: all } = await store.details({ cellsUnder: 'worker:' })
  return all.map(({ value }) => JSON.parse(value) as WorkerCell)
}

const successor = (queue: Queue, options: WorkerOptions<never, readonly []> = {}): Worker =>
  newWorker(queue, { film: () => 'done' }, { lease: '10m', ...(options as object) })

describe('a worker that starts', () => {
  it('has recorded which process it is', async () => {
    const { process, store } = machine()
    const worker = successor(process('first'))
    await worker.run()
    expect(await cells(store)).toMatchObject([{ id: worker.id, origin: origin('first') }])
  })

  it('retries the jobs of the dead at once, many of them, and clears the dead away', async () => {
    const { process, store, killed } = machine()
    const first = process('first')
    const dead = await dying(first, 600)
    killed.add('first')
    const second = process('second')
    const stalled: string[] = []
    const all = new Promise<void>((resolve) => {
      second.on('stalled', ({ id, worker }) => {
        expect(worker).toBe(dead.id)
        if (stalled.push(id) === 600) resolve()
      })
    })
    const worker = successor(second, { concurrency: 50 })
    await all
    const jobs = await Promise.all(Array.from({ length: 600 }, (_, n) => second.get(`work ${n}`)))
    expect(await Promise.all(jobs.map((job) => job!.result()))).toEqual(Array.from({ length: 600 }, () => 'done'))
    await worker.close()
    expect(await cells(store)).toEqual([])
  })

  it('frees what the dead counted against limits', async () => {
    const { process, killed, store } = machine()
    const first = process('first')
    await first.limit({ concurrency: 1 })
    await dying(first, 1)
    killed.add('first')
    const second = process('second')
    const job = (await second.get('work 0'))!
    successor(second)
    expect(await job.result()).toBe('done')
    const [tally] = await store.tally(['work'])
    expect(tally!.leases['film'] ?? 0).toBe(0)
  })

  it.each(['remove', 'cancel'] as const)(
    'frees what the dead counted against limits for jobs that somebody has made to %s since',
    async (how) => {
      const { process, killed, store } = machine()
      const first = process('first')
      await first.limit({ concurrency: 2 })
      await dying(first, 2)
      killed.add('first')
      const second = process('second')
      await second[how]('work 0')
      await second[how]('work 1')
      const job = await second.add('film', {})
      successor(second)
      expect(await job.result({ timeout: '60s' })).toBe('done')
      const [tally] = await store.tally(['work'])
      expect(tally!.leases['film'] ?? 0).toBe(0)
      expect((await cells(store)).map(({ origin: { start } = origin('none') }) => start)).toEqual(['second'])
    },
  )

  it("fails the jobs of the dead with recovery: 'fail', whatever attempts are left, and releases who waits for them", async () => {
    const { process, killed } = machine()
    const dead = await dying(process('first'), 1)
    killed.add('first')
    const second = process('second')
    await second.add('film', {}, { id: 'waits', after: ['work 0'] })
    const failed = event(second, 'failed', ({ id }) => id === 'waits')
    successor(second, { recovery: 'fail' })
    expect((await failed).error.code).toBe('DEPENDENCY_FAILED')
    const job = (await second.get('work 0'))!
    expect(job.error).toMatchObject({ code: 'WORKER_DIED', message: expect.stringContaining(dead.id) })
    expect(job.attempt).toBeLessThan(job.attempts)
  })

  it('leaves those alone who live, who are elsewhere, and of whom nothing is known', async () => {
    const { process, killed, store } = machine()
    await dying(process('living'), 1)
    const unknown = closing(
      new Queue('work', { store: { ...observed(store, () => {}), runtime: bare() }, logger: false }),
    )
    newWorker(unknown, { film: () => new Promise(() => {}) }, { lease: '10m' })
    await addActive(unknown, 'film', {}, { id: 'unknown' })
    await dying(process('dead', 'other'), 1) // in a queue that is not its own
    killed.add('dead')
    const starts = process('starts')
    const worker = successor(starts)
    await worker.run()
    await worker.close()
    for (const id of ['work 0', 'unknown', 'other 0']) {
      expect((await store.get([id]))[0]).toMatchObject({ state: 'active', fence: 1 })
    }
    expect(await cells(store)).toHaveLength(3)
  })

  it('leaves jobs that it does not handle, and the entry of their worker, to those who do', async () => {
    const { process, killed, store } = machine()
    await dying(process('first'), 2, ['film', 'song'])
    killed.add('first')
    const second = process('second')
    const film = (await second.get('work 0'))!
    const worker = successor(second)
    await film.result()
    await worker.close()
    expect((await second.get('work 1'))!.state).toBe('active')
    expect(await cells(store)).toHaveLength(1)
    const song = (await second.get('work 1'))!
    const third = newWorker(second, { song: () => 'sung' })
    expect(await song.result()).toBe('sung')
    await third.close()
    expect(await cells(store)).toEqual([])
  })

  it('takes a job from the dead once, however many start together', async () => {
    const { process, killed } = machine()
    await dying(process('first'), 20)
    killed.add('first')
    const queues = ['a', 'b', 'c'].map((name) => process(name))
    let stalls = 0
    queues[0]!.on('stalled', () => stalls++)
    const jobs = await Promise.all(Array.from({ length: 20 }, (_, n) => queues[0]!.get(`work ${n}`)))
    for (const queue of queues) successor(queue)
    await Promise.all(jobs.map((job) => job!.result()))
    expect(stalls).toBe(20)
    for (const job of jobs) expect(await job!.refresh()).toMatchObject({ attempt: 2, stalls: 1 })
  })

  it.runIf(process.platform === 'linux')(
    'takes a worker for dead whose pid another process has now, one that lives',
    async () => {
      const store = closing(memory())
      const real = systemRuntime().processes!
      const earlier: Processes = { self: () => ({ ...real.self()!, start: '1' }), gone: () => false }
      const on = (processes: Processes): Queue =>
        closing(
          new Queue('work', {
            store: { ...observed(store, () => {}), runtime: { ...systemRuntime(), processes } },
            logger: false,
          }),
        )
      await dying(on(earlier), 1)
      const queue = on(real)
      const living = newWorker(queue, { song: () => new Promise(() => {}) }, { lease: '10m' })
      await living.run()
      await addActive(queue, 'song', {}, { id: 'song' })
      const job = (await queue.get('work 0'))!
      successor(queue)
      expect(await job.result()).toBe('done')
      expect(await queue.get('song')).toMatchObject({ state: 'active', worker: living.id, fence: 1 })
    },
  )

  it('refuses a recovery that there is not', () => {
    const { process } = machine()
    expect(() => successor(process('a'), { recovery: 'forget' as never })).toThrow(
      expect.objectContaining({ code: 'INVALID_OPTION' }),
    )
  })
})

function bare(): ReturnType<typeof systemRuntime> {
  const { processes: _, ...rest } = systemRuntime()
  return rest
}

describe('the rule for a job whose worker has died', () => {
  const job = record({ state: 'active', attempt: 1, attempts: 3, worker: 'w', fence: 4 })

  it('retries as if its lease had run out, though that still runs', () => {
    expect(orphaned(job, 'retry')).toMatchObject([
      { kind: 'move', fence: 4, to: 'waiting', held: false, why: 'stalled', place: 'old', set: { stalls: 1 } },
    ])
    expect(orphaned(job, 'retry')[0]).toMatchObject({ reaps: undefined })
  })

  it('gives a job its attempt back that was leased ahead', () => {
    expect(orphaned({ ...job, ahead: true }, 'retry')).toMatchObject([
      { to: 'waiting', set: { attempt: 0, stalls: 1 } },
    ])
  })

  it('ends a job that has no attempt left', () => {
    const [move] = orphaned({ ...job, attempt: 3 }, 'retry')
    expect(move).toMatchObject({ to: 'failed', set: { error: { code: 'JOB_EXHAUSTED' } } })
  })

  it("fails it with recovery: 'fail', and informs those that wait for it", () => {
    expect(orphaned({ ...job, ahead: true }, 'fail')).toMatchObject([
      { to: 'failed', held: false, set: { error: { code: 'WORKER_DIED' } } },
      { kind: 'release', outcome: 'failed' },
    ])
  })
})

describe.runIf(process.platform === 'linux')('the processes of this machine', () => {
  const file = freshFolder()
  const own = procfs()

  it('know themselves, and that they are not gone', () => {
    const self = own.self()!
    expect(self.pid).toBe(process.pid)
    expect(own.gone(self)).toBe(false)
  })

  it('know that one has ended, and take none for gone that they cannot see', async () => {
    const child = spawn(process.execPath, ['--eval', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
    const exited = once(child, 'exit')
    const self = own.self()!
    const other = { ...self, pid: child.pid!, start: startOf(child.pid!) }
    expect(own.gone(other)).toBe(false)
    child.kill('SIGKILL')
    await exited
    expect(own.gone(other)).toBe(true)
    expect(own.gone({ ...other, boot: 'another machine' })).toBe(false)
    expect(own.gone({ ...other, namespace: 'pid:[1]' })).toBe(false)
    for (const pid of [0, -1, 1.5, NaN]) expect(own.gone({ ...other, pid })).toBe(false)
  })

  it('know a process by its start: one with the same pid that began at another time is another', () => {
    const self = own.self()!
    expect(own.gone({ ...self, start: `${self.start}0` })).toBe(true)
  })

  it('read a name with brackets and spaces, and know a zombie for dead', () => {
    const root = file('proc')
    const { pid, ppid } = process
    mkdirSync(`${root}/${pid}/ns`, { recursive: true })
    mkdirSync(`${root}/sys/kernel/random`, { recursive: true })
    writeFileSync(`${root}/sys/kernel/random/boot_id`, 'a boot\n')
    symlinkSync('pid:[5]', `${root}/${pid}/ns/pid`)
    symlinkSync(String(pid), `${root}/self`)
    const stat = (of: number, state: string, start: number): void => {
      mkdirSync(`${root}/${of}`, { recursive: true })
      const fields = [state, ...Array.from({ length: 18 }, () => 1), start, 0]
      writeFileSync(`${root}/${of}/stat`, `${of} (a ) S (b) ${fields.join(' ')}\n`)
    }
    stat(pid, 'R', 100)
    const made = procfs(root)
    const self = made.self()!
    expect(self).toMatchObject({ boot: 'a boot', pid, start: '100' })
    expect(self.namespace).toContain('pid:[5]')
    const parent = { ...self, pid: ppid, start: '90' }
    expect(made.gone(parent)).toBe(false) // it is hidden, and lives
    stat(ppid, 'S', 90)
    expect(made.gone(parent)).toBe(false)
    stat(ppid, 'Z', 90)
    expect(made.gone(parent)).toBe(true)
  })

  it('are not known where there is no such folder, or one for others', () => {
    const self = own.self()!
    expect(procfs(file('nowhere')).self()).toBeUndefined()
    expect(procfs(file('nowhere')).gone({ ...self, start: '0' })).toBe(false)
    const root = file('others')
    mkdirSync(root)
    symlinkSync('1234567', `${root}/self`)
    expect(procfs(root).self()).toBeUndefined()
  })
})

/** When a process began, in the kernel's count. */
function startOf(pid: number): string {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return text.slice(text.lastIndexOf(')') + 2).split(' ')[19]!
}
