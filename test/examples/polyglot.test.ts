// The workers in other languages, as they stand: they share a queue with a TypeScript worker, are killed in mid-job, lose
// their server for a while, and are shut down. Every job is accounted for.
import { spawn, spawnSync } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { afterEach, describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { Job, Store } from 'millrace'
import { createToken, serve, tokenList } from 'millrace/server'
import { sqlite } from 'millrace/sqlite'
import { observed } from '../observed-store.js'
import { closing, event, newWorker } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'

const has = (program: string, ...args: readonly string[]): boolean => spawnSync(program, args).status === 0

/** The languages, the program of each, and whether this machine can run it. */
const languages = [
  ['python', ['python3', 'examples/polyglot/worker.py'], has('python3', '--version')],
  ['bash', ['bash', 'examples/polyglot/worker.sh'], has('jq', '--version') && has('curl', '--version')],
  ['go', ['go', 'run', 'examples/polyglot/worker.go'], has('go', 'version')],
] as const

const file = freshFolder()
const running: ChildProcess[] = []
const { token, entry } = createToken({ name: 'polyglot', roles: ['work'], queues: ['work'] })
let made = 0

afterEach(async () => {
  for (const child of running.splice(0)) {
    const exited = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
    try {
      process.kill(-child.pid!, 'SIGKILL') // what a killed shell has left behind as well
    } catch {
      // they have ended
    }
    await exited
  }
})

interface World {
  readonly store: Store
  readonly queue: Queue
  readonly port: number
  /** Resolves with the next heartbeat: whose job it is has it in hand. */
  beat(): Promise<void>
  start(program: readonly string[], lease?: string): ChildProcess
  serve(port?: number): Promise<{ readonly close: () => Promise<void>; readonly port: number }>
}

async function newWorld(): Promise<World> {
  let beaten = (): void => {}
  const store = closing(
    observed(sqlite(file(`${++made}.db`)), ({ renewals }) => void (renewals.length > 0 && beaten())),
  )
  const queue = closing(new Queue('work', { store, logger: false }))
  const start = async (port = 0): ReturnType<World['serve']> => {
    const server = closing(serve({ store, auth: tokenList([entry]), logger: false }))
    return { port: (await server.listen({ port })).port, close: () => server.close() }
  }
  const { port, close } = await start()
  let closeFirst: (() => Promise<void>) | undefined = close
  return {
    store,
    queue,
    port,
    beat: () => new Promise((resolve) => (beaten = resolve)),
    async serve() {
      await closeFirst?.()
      closeFirst = undefined
      return start(port)
    },
    start([program, ...args], lease = '30s') {
      const MILLRACE_URL = `http://127.0.0.1:${port}`
      const env = { ...process.env, MILLRACE_URL, MILLRACE_TOKEN: token, MILLRACE_LEASE: lease }
      const child = spawn(program!, args, { env, detached: true, stdio: 'ignore' })
      running.push(child)
      return child
    },
  }
}

const completed = (queue: Queue, id: string): Promise<unknown> => event(queue, 'completed', (each) => each.id === id)

describe.each(languages)('a worker in %s', (language, program, runs) => {
  it.runIf(runs)(
    'shares a queue with a TypeScript worker; killed in mid-job, it loses no job and doubles none',
    async () => {
      const { queue, start } = await newWorld()
      const ends: string[] = []
      queue.on('completed', ({ id }) => void ends.push(id))
      const active = event(queue, 'active')
      const first = await queue.add('wait', { seconds: 600 })
      const killed = start(program, '1s')
      await active
      const stalled = event(queue, 'stalled')
      killed.kill('SIGKILL')
      await stalled
      await (await queue.get(first.id))!.update({ data: { seconds: 0 } })
      const jobs = await queue.addBulk(Array.from({ length: 30 }, () => ({ name: 'wait', data: { seconds: 0.02 } })))
      const all = [first, ...jobs]
      const foreign = event(queue, 'active', ({ worker }) => worker.startsWith('polyglot/'))
      start(program)
      await foreign
      newWorker(queue, async (job) => ({ waited: (job.data as { seconds: number }).seconds, by: 'typescript' }))
      await Promise.all(all.map(async ({ id }) => (await queue.get(id))!.result()))
      const done = (await Promise.all(all.map(({ id }) => queue.get(id)))) as Job[]
      expect(done.map(({ state }) => state)).toEqual(all.map(() => 'completed'))
      expect(done[0]).toMatchObject({ attempt: 2 })
      expect(done.slice(1).map(({ attempt }) => attempt)).toEqual(jobs.map(() => 1))
      const by = done.map(({ returned }) => (returned as { by: string }).by)
      expect(new Set(by)).toEqual(new Set([language, 'typescript']))
      expect(ends.toSorted()).toEqual(all.map(({ id }) => id).toSorted())
    },
    60_000,
  )

  it.runIf(runs)(
    'keeps its job while the server is away, and settles it when that is back',
    async () => {
      const { queue, start, serve: serveAgain } = await newWorld()
      const active = event(queue, 'active')
      const { id } = await queue.add('wait', { seconds: 1.5 })
      start(program, '3s')
      await active
      const ended = completed(queue, id)
      await serveAgain()
      await ended
      expect(await queue.get(id)).toMatchObject({ attempt: 1, returned: { waited: 1.5, by: language } })
    },
    60_000,
  )

  it.runIf(runs)(
    'reports a failure, which is retried by the rules of the job',
    async () => {
      const { queue, start } = await newWorld()
      const failed = event(queue, 'failed')
      const { id } = await queue.add('wait', { seconds: -1 }, { attempts: 2, backoff: 10 })
      start(program)
      await failed
      const job = (await queue.get(id))!
      expect(job.attempt).toBe(2)
      expect(job.errors.map(({ message }) => message.trim())).toEqual(Array(2).fill('nobody can wait that long'))
    },
    60_000,
  )

  it.runIf(runs)(
    'stops its work when the job is cancelled',
    async () => {
      const { queue, start } = await newWorld()
      const active = event(queue, 'active')
      const first = await queue.add('wait', { seconds: 600 })
      start(program, '1s')
      await active
      await (await queue.get(first.id))!.cancel()
      const second = await queue.add('wait', { seconds: 0 })
      await completed(queue, second.id)
      expect(await queue.get(first.id)).toMatchObject({ state: 'cancelled' })
    },
    60_000,
  )

  it.runIf(runs)(
    'finishes its job and ends when it is told to, and at once when it has none',
    async () => {
      const { queue, start, beat } = await newWorld()
      const { id } = await queue.add('wait', { seconds: 1 })
      const beaten = beat()
      const child = start(program, '1s')
      await beaten
      const exited = once(child, 'exit')
      child.kill('SIGTERM')
      expect(await exited).toEqual([0, null])
      const { state, attempt } = (await queue.get(id))!
      expect({ state, attempt }).toEqual({ state: 'completed', attempt: 1 })
      const registered = event(queue, 'worker-started')
      const idle = start(program)
      await registered
      const gone = once(idle, 'exit')
      idle.kill('SIGTERM')
      expect(await gone).toEqual([0, null])
      expect(await queue.counts()).toMatchObject({ active: 0 })
    },
    60_000,
  )
})
