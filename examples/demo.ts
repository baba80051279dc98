// What `npm run demo` shows: three worker processes on one SQLite file. One is killed, and no job is lost.
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Queue, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { conclusion, problems, table } from './demo/account.js'
import { Board, watched } from './demo/board.js'
import { dismiss, start } from './demo/crew.js'
import type { Hand } from './demo/crew.js'
import { QUEUE, jobs } from './demo/jobs.js'
import { openScreen } from './demo/screen.js'

const { values: options } = parseArgs({ options: { keep: { type: 'boolean', default: false } } })

/** A worker process is killed when a film has come this far. */
const KILL_AT = 40
const WORKERS = ['worker 1', 'worker 2', 'worker 3']

const folder = mkdtempSync(join(tmpdir(), 'millrace-demo-'))
const path = join(folder, 'jobs.db')
const store = sqlite(path)
const queue = new Queue(QUEUE, { store, jobs })

const hands: Hand[] = []
const names = new Map<string, string>()
const board = new Board((worker) => names.get(worker) ?? worker)

const screen = openScreen(process.stdout, {
  title: `Three worker processes on ${path}`,
  board,
  workers: () =>
    hands
      .filter(({ name }) => WORKERS.includes(name))
      .map((hand) => {
        const doing = hand.name === board.killed ? 'killed' : (board.jobOf(hand.name)?.id ?? 'idle')
        return `${hand.name}   process ${String(hand.process.pid).padEnd(8)} ${doing}`
      }),
})

/** Ctrl-C, or nobody left to read what we write. */
const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => interrupted.abort())
process.stdout.on('error', () => interrupted.abort())

/** Runs the shop until every order is done; answers what is wrong with the account. */
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
    const victim = hands.find(({ name }) => name === holder)
    if (victim === undefined) return
    board.killed = victim.name
    victim.process.kill('SIGKILL')
    const text = `${victim.name} (process ${victim.process.pid}) is killed at ${String(event.progress)} % of ${event.id}`
    screen.print({ tone: 'bad', text })
  })
  await queue.counts() // which opens the file: from here on, we hear everything

  const workers = WORKERS.map((name) =>
    start(name, './worker.ts', path, (message) => {
      if ('worker' in message) names.set(message.worker, name)
      if ('error' in message) screen.print({ tone: 'bad', text: `${name}: ${message.error}` })
    }),
  )
  hands.push(...workers)
  await Promise.all(workers.map(({ ready }) => ready))
  for (const { name, process: child } of workers) {
    screen.print({ tone: 'plain', text: `${name} is ready, process ${child.pid}` })
  }

  interrupted.signal.throwIfAborted()
  const producer = start('producer', './producer.ts', path)
  hands.push(producer)
  const message = await producer.ready
  const acknowledged = 'acknowledged' in message ? message.acknowledged : []
  screen.print({ tone: 'plain', text: `the producer has added ${acknowledged.length} jobs and is gone` })

  // A job that fails is for the account to tell.
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

await dismiss(hands)
await shutdown([queue, store])
if (options.keep) console.log(`The database is kept: ${path}`)
else rmSync(folder, { recursive: true, force: true })
