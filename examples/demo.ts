// `npm run demo`: three worker processes on one SQLite file. One is killed, and no job is lost.
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Queue, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { conclusion, problems, table } from './demo/account.js'
import { Board, watched } from './demo/board.js'
import { stopAll, start } from './demo/processes.js'
import type { DemoProcess } from './demo/processes.js'
import { QUEUE, jobs } from './demo/jobs.js'
import { openScreen } from './demo/screen.js'

const { values: options } = parseArgs({ options: { keep: { type: 'boolean', default: false } } })

/** The progress of a film at which its worker process is killed. */
const KILL_AT = 40
const WORKERS = ['worker 1', 'worker 2', 'worker 3']

const folder = mkdtempSync(join(tmpdir(), 'millrace-demo-'))
const path = join(folder, 'jobs.db')
const store = sqlite(path)
const queue = new Queue(QUEUE, { store, jobs })

const processes: DemoProcess[] = []
const names = new Map<string, string>()
const board = new Board((worker) => names.get(worker) ?? worker)

const screen = openScreen(process.stdout, {
  title: `Three worker processes on ${path}`,
  board,
  workers: () =>
    processes
      .filter(({ name }) => WORKERS.includes(name))
      .map((each) => {
        const doing = each.name === board.killed ? 'killed' : (board.jobOf(each.name)?.id ?? 'idle')
        return `${each.name}   process ${String(each.process.pid).padEnd(8)} ${doing}`
      }),
})

/** Ctrl-C, or a closed output stream. */
const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => interrupted.abort())
process.stdout.on('error', () => interrupted.abort())

/** Runs the shop until every order is done; returns what is wrong with the account. */
async function run(): Promise<string[]> {
  for (const type of watched) {
    queue.on(type, (event) => {
      const line = board.see(event)
      if (line !== undefined) screen.print(line)
    })
  }
  queue.on('progress', (event) => {
    if (board.killed !== undefined || Number(event.progress) < KILL_AT) return
    const holder = board.jobs.get(event.id)?.worker
    const victim = processes.find(({ name }) => name === holder)
    if (victim === undefined) return
    board.killed = victim.name
    victim.process.kill('SIGKILL')
    const text = `${victim.name} (process ${victim.process.pid}) is killed at ${String(event.progress)} % of ${event.id}`
    screen.print({ tone: 'bad', text })
  })
  await queue.counts() // opens the file: from here on, all events are received

  const workers = WORKERS.map((name) =>
    start(name, './worker.ts', path, (message) => {
      if ('worker' in message) names.set(message.worker, name)
      if ('error' in message) screen.print({ tone: 'bad', text: `${name}: ${message.error}` })
    }),
  )
  processes.push(...workers)
  await Promise.all(workers.map(({ ready }) => ready))
  for (const { name, process: child } of workers) {
    screen.print({ tone: 'plain', text: `${name} is ready, process ${child.pid}` })
  }

  interrupted.signal.throwIfAborted()
  const producer = start('producer', './producer.ts', path)
  processes.push(producer)
  const message = await producer.ready
  const acknowledged = 'acknowledged' in message ? message.acknowledged : []
  screen.print({ tone: 'plain', text: `the producer has added ${acknowledged.length} jobs and is gone` })

  // The account lists failed jobs.
  await Promise.allSettled(
    acknowledged.map(async (id) => {
      const added = await queue.get(id)
      await added?.result({ timeout: '1m' })
    }),
  )
  const { jobs: found } = await queue.list({ limit: 1000 })
  screen.close()
  console.log(`\n${table(found, board)}\n`)
  const wrong = problems(acknowledged, found, board)
  if (wrong.length === 0) console.log(conclusion(found, board))
  return wrong
}

try {
  const stopped = once(interrupted.signal, 'abort').then(() => Promise.reject(new Error('Interrupted.')))
  const wrong = await Promise.race([run(), stopped])
  for (const each of wrong) console.error(`The account is wrong: ${each}.`)
  if (wrong.length > 0) process.exitCode = 1
} catch (error) {
  screen.close()
  console.error((error as Error).message)
  process.exitCode = interrupted.signal.aborted ? 130 : 1
}

await stopAll(processes)
await shutdown([queue, store])
if (options.keep) console.log(`The database is kept: ${path}`)
else rmSync(folder, { recursive: true, force: true })
