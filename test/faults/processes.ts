// Other processes for the tests of faults: started as programs of `programs/`, talked to by messages, ended by their id.
import { fork, spawnSync } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll } from 'vitest'
import { freshFolder } from '../stores/sqlite/folder.js'

/** How a process ended. */
interface End {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stderr: string
}

/** A message of a program: a kind, and whatever belongs to it. */
export interface AnyMessage {
  readonly kind: string
}

/** A process under test. */
export interface Process<Message extends AnyMessage> {
  readonly pid: number
  /** How it ended; never rejects. */
  readonly ended: Promise<End>
  /** Whether it has not ended yet. */
  readonly alive: boolean
  /** Sends it a message. */
  send(message: object): void
  /** The next unread message of a kind (that fits); rejects if the process ends without it. */
  received<Kind extends Message['kind']>(
    kind: Kind,
    fits?: (message: Message & { kind: Kind }) => boolean,
  ): Promise<Message & { kind: Kind }>
  /** Calls back for every message, taken or not, from the first on. */
  onEach(listener: (message: Message) => void): void
  /** Sends a signal by its id. */
  signal(name: NodeJS.Signals): void
  /** SIGKILL, and waits until it is gone. */
  kill(): Promise<End>
  /** Makes it end by itself, and waits until it has. */
  finish(): Promise<End>
}

const running = new Set<ChildProcess>()

/** Where the programs are, compiled. */
let programs = ''

/**
 * A fresh folder for each test, and programs that can be started there; those that are left are ended before it is
 * removed, or after all tests. Answers the path of a name in it.
 */
export function scene(ending: typeof afterEach | typeof afterAll = afterEach): (name?: string) => string {
  beforeAll(() => {
    programs = compile()
  })
  const path = freshFolder()
  ending(endAll)
  afterAll(() => rmSync(programs, { recursive: true }))
  return path
}

/** Compiles the programs: most of a start would be spent on that otherwise, and some tests start dozens. */
function compile(): string {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const cache = join(root, 'node_modules/.cache') // where the packages they import are found
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(join(cache, 'millrace-faults-'))
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }\n')
  const project = join(root, 'test/faults/tsconfig.programs.json')
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', project, '--outDir', folder])
  if (status !== 0) throw new Error(`The programs of test/faults/programs could not be compiled: ${String(stdout)}`)
  return folder
}

/** Ends all processes that were started here, and waits until they are gone. */
export async function endAll(): Promise<void> {
  await Promise.all([...running].map(ended))
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.once('close', () => resolve())
    child.kill('SIGKILL')
  })
}

/** Starts a program of `programs/` with one argument, which it is given as JSON. */
export function start<Message extends AnyMessage>(program: string, input: object): Process<Message> {
  const child = fork(join(programs, `test/faults/programs/${program}.js`), [JSON.stringify(input)], {
    execArgv: [],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  })
  running.add(child)
  let stderr = ''
  child.stderr?.on('data', (chunk) => (stderr += String(chunk)))
  const messages: Message[] = []
  const untaken: Message[] = []
  const waiting = new Set<{ take: (message: Message) => boolean; fail: (end: End) => void }>()
  const listeners: ((message: Message) => void)[] = []
  let alive = true

  child.on('message', (message) => {
    const received = message as Message
    messages.push(received)
    for (const listener of listeners) listener(received)
    for (const each of waiting) {
      if (!each.take(received)) continue
      waiting.delete(each)
      return
    }
    untaken.push(received)
  })
  // It has ended when all of its messages have arrived as well.
  const silent = new Promise<void>((resolve) => child.on('disconnect', resolve))
  const ended = new Promise<End>((resolve) => {
    child.on('close', (code, signal) => {
      running.delete(child)
      void silent.then(() => {
        alive = false
        const end = { code, signal, stderr }
        for (const each of waiting) each.fail(end)
        resolve(end)
      })
    })
  })

  return {
    pid: child.pid!,
    ended,
    get alive() {
      return alive
    },
    send: (message) => void child.send(message, () => {}), // one that is gone by now does not mind
    received: (kind, fits = () => true) =>
      new Promise((resolve, reject) => {
        const take = (message: Message): boolean => {
          const mine = message as Message & { kind: typeof kind }
          if (message.kind !== kind || !fits(mine)) return false
          resolve(mine)
          return true
        }
        const at = untaken.findIndex(take)
        if (at >= 0) untaken.splice(at, 1)
        else if (!alive) reject(new Error(`${program} ended before it sent '${kind}': ${stderr}`))
        else waiting.add({ take, fail: (end) => reject(notReceived(program, kind, end, messages)) })
      }),
    onEach: (listener) => {
      for (const message of messages) listener(message)
      listeners.push(listener)
    },
    signal: (name) => void child.kill(name),
    kill: () => {
      child.kill('SIGKILL')
      return ended
    },
    finish: () => {
      child.send({ kind: 'finish' }, () => {})
      return ended
    },
  }
}

function notReceived(program: string, kind: string, end: End, messages: readonly AnyMessage[]): Error {
  const last = messages.at(-1)
  return new Error(
    `${program} ended (${end.code ?? end.signal}) before it sent '${kind}'; its last message was ${JSON.stringify(last)}. ${end.stderr}`,
  )
}
