// A busy run that a fault is put into: workers in processes of their own, and a producer here that adds until its add is
// acknowledged. At the end the account is exact.
import { setTimeout } from 'node:timers/promises'
import { Client } from 'pg'
import { expect, onTestFinished } from 'vitest'
import { Queue } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { closing, event } from '../../setup.js'
import { linesOf, repeated, soundAccountOf, states } from '../account.js'
import { errorToSend } from '../programs/messages.js'
import type { SentError } from '../programs/messages.js'
import { start } from '../processes.js'
import type { Process } from '../processes.js'
import type { WorkerInput, WorkerMessage } from '../programs/postgres/worker.js'

/** How busy, and where. */
interface BusyOptions {
  /** Where the producer connects, and the accounts are read. */
  readonly url: string
  /** Where workers connect. Default: the same. */
  readonly workersUrl?: string
  readonly workers?: number
  readonly ledger: string
  readonly store?: WorkerInput['store']
  readonly worker?: WorkerInput['worker']
}

/** A run in full swing. */
export interface Busy {
  readonly workers: readonly Process<WorkerMessage>[]
  /** The errors that the workers have emitted so far. */
  readonly workerErrors: readonly SentError[]
  /** Waits until so many more jobs are done. */
  more(count: number): Promise<void>
  /** Waits for the next error that a worker emits, with a code or a message like this if given; returns it. */
  trouble(like?: string | RegExp): Promise<SentError>
  /** Adds one more job, once; answers what it was refused with, if it was, and then nothing may have been written. */
  add(): Promise<SentError | undefined>
  /** Waits for the next attempt that fails and is made again; answers the message of its error. */
  retrying(): Promise<string>
  /** Adds no more, waits until all is done, and holds the account against what was acknowledged. */
  finish(): Promise<void>
}

/** Jobs that wait while the run is busy. */
const BACKLOG = 60

/** Starts a busy run; resolves when all workers work. */
export async function busyRun(options: BusyOptions): Promise<Busy> {
  const { url, workersUrl = url, ledger } = options
  await withClient(url, (client) => client.query('create table effect (job text, attempt int)'))
  const store = closing(postgres(url, options.store))
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 1000, backoff: 10 } }))
  await store.open()

  const added = new Set<string>()
  const completed = new Set<string>()
  const acknowledged: string[] = []
  const workerErrors: SentError[] = []
  const waiting = new Set<() => void>()
  const until = async (holds: () => boolean): Promise<void> => {
    while (!holds()) await new Promise<void>((resolve) => waiting.add(resolve))
  }
  const changed = (): void => {
    for (const each of waiting) each()
    waiting.clear()
  }

  /** The first error of a list that comes from now on. */
  const next = async (errors: readonly SentError[], like?: string | RegExp): Promise<SentError> => {
    const seen = errors.length
    const found = (): SentError | undefined =>
      errors
        .slice(seen)
        .find(({ codes, message }) => (typeof like === 'string' ? codes.includes(like) : (like?.test(message) ?? true)))
    await until(() => found() !== undefined)
    return found()!
  }

  queue.on('completed', ({ id }) => {
    completed.add(id)
    changed()
  })
  const workers = Array.from({ length: options.workers ?? 2 }, () =>
    start<WorkerMessage>('postgres/worker', {
      url: workersUrl,
      ledger,
      ...(options.store && { store: options.store }),
      worker: { concurrency: 4, lease: 4000, upkeepEvery: 500, pollEvery: 500, ...options.worker },
    } satisfies WorkerInput),
  )
  for (const worker of workers) {
    worker.onEach((message) => {
      if (message.kind === 'completed') acknowledged.push(message.id)
      if (message.kind === 'error') workerErrors.push(message.error)
      changed()
    })
  }
  await Promise.all(workers.map((worker) => worker.received('running')))

  const producer = { producing: true, over: false, extra: 0 }
  const add = async (id: string): Promise<void> => {
    while (!producer.over) {
      try {
        await queue.add(Number(id) % 2 === 0 ? 'chore' : 'effect', {}, { id })
        added.add(id)
        return
      } catch {
        await setTimeout(20) // as a caller would who tries again
      }
    }
  }
  const produce = async (): Promise<void> => {
    for (let n = 0; producer.producing; n += 10) {
      await Promise.all(Array.from({ length: 10 }, (_, each) => add(String(n + each))))
      await until(() => !producer.producing || added.size - completed.size < BACKLOG)
    }
  }
  const produced = produce()
  onTestFinished(() => {
    producer.producing = false
    producer.over = true
    changed()
  })

  return {
    workers,
    workerErrors,
    more: async (count) => {
      const goal = completed.size + count
      await until(() => completed.size >= goal)
    },
    trouble: (like) => next(workerErrors, like),
    retrying: async () => (await event(queue, 'retrying')).error?.message ?? '',
    add: async () => {
      const id = `one-more-${++producer.extra}`
      try {
        await queue.add('chore', {}, { id })
        added.add(id)
        return undefined
      } catch (error) {
        return errorToSend(error)
      }
    },
    finish: async () => {
      producer.producing = false
      changed()
      await produced
      await until(() => completed.size >= added.size)
      const gone = workers.filter((each) => !each.alive)
      expect(await Promise.all(gone.map((each) => each.ended))).toEqual([]) // or it says how
      for (const end of await Promise.all(workers.map((each) => each.finish()))) expect(end).toMatchObject({ code: 0 })

      const ids = [...added].toSorted()
      expect([...completed].toSorted()).toEqual(ids)
      const { jobs, tallies } = await soundAccountOf(store)
      expect(states(jobs)).toEqual({ completed: ids.length })
      expect(jobs.map(({ id }) => id).toSorted()).toEqual(ids)
      expect(tallies[0]?.lifetime).toMatchObject({ added: ids.length, completed: ids.length, failed: 0 })

      // A transaction whose COMMIT got no answer has an unknown outcome; a batch without an answer has been sent again.
      expect(repeated(acknowledged)).toEqual([])
      const known = new Set(acknowledged)
      expect(jobs.filter(({ id, name }) => name === 'chore' && !known.has(id))).toEqual([])

      const lines = linesOf(ledger)
      const of = (verb: string): readonly string[] =>
        lines.filter(([first]) => first === verb).map(([, ...words]) => words.join(' '))
      expect(repeated(of('claimed'))).toEqual([])
      expect(repeated(of('settled').map((line) => line.split(' ')[0]!))).toEqual([])
      const ended = new Set(of('ended'))
      expect(jobs.filter(({ id, attempt, worker }) => !ended.has(`${id} ${attempt} ${worker}`))).toEqual([])

      // What jobs wrote through `ctx.complete`: one row each, of the attempt that settled it.
      const effects = jobs.filter(({ name }) => name === 'effect').map(({ id, attempt }) => `${id} ${attempt}`)
      const { rows } = await withClient(url, (client) =>
        client.query<{ job: string; attempt: number }>('select job, attempt from effect'),
      )
      expect(effects.length).toBeGreaterThan(0)
      expect(rows.map(({ job, attempt }) => `${job} ${attempt}`).toSorted()).toEqual(effects.toSorted())
    },
  }
}

/** Runs some work with a connection of its own. */
export async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client(url)
  client.on('error', () => {})
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

/** Ends all connections to the database of a URL but the one that does it; answers how many. */
export async function endBackends(url: string): Promise<number> {
  const { rowCount } = await withClient(url, (client) =>
    client.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`,
    ),
  )
  return rowCount ?? 0
}
