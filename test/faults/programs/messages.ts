// What the programs share: their one argument, and messages to and from the test that started them.
import { EventEmitter } from 'node:events'
import fs, { closeSync, openSync, writeSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

process.on('disconnect', () => process.exit(1)) // the test is gone

/** The argument of this program. */
export function input(): unknown {
  return JSON.parse(process.argv[2] ?? '{}')
}

/** Sends a message to the test. */
export function send(message: object): void {
  process.send?.(message)
}

/** What a test may send to a program: a kind, and what belongs to it. */
interface Order {
  readonly kind: string
  readonly id?: string
  readonly data?: object
  readonly keys?: readonly string[]
  readonly ids?: readonly string[]
}

/** Orders that came before anybody listened for them, and those who listen. */
const kept: Order[] = []
const listeners: { readonly kind: string; readonly listener: (order: Order) => void }[] = []

process.on('message', (order: Order) => {
  const listening = listeners.filter(({ kind }) => kind === order.kind)
  if (listening.length === 0) kept.push(order)
  for (const { listener } of listening) listener(order)
})

/** Calls back for every order of a kind, those that have come already too. */
export function on(kind: string, listener: (order: Order) => void): void {
  listeners.push({ kind, listener })
  for (const order of kept) if (order.kind === kind) listener(order)
}

/** Resolves with the first order of a kind. */
export function once(kind: string): Promise<Order> {
  return new Promise((resolve) => on(kind, resolve))
}

/** Lets this process end once the test is done with it; never before what follows this call has been begun. */
export function untilFinished(end: () => Promise<void>): void {
  once('finish')
    .then(end)
    .then(
      () => process.exit(0),
      (error: unknown) => {
        process.stderr.write(`${String(error)}\n`)
        process.exit(1)
      },
    )
}

/**
 * A file that several processes add lines to: each line is there, whole, when the call returns, whatever becomes of the
 * process, and lines stand in the order in which they were written.
 */
export function ledger(path: string): { readonly write: (...words: readonly (string | number)[]) => void } {
  const file = openSync(path, 'a')
  process.on('exit', () => closeSync(file))
  return { write: (...words) => void writeSync(file, `${words.join(' ')}\n`) }
}

const NOBODY = 65_534

/** Gives up the rights of root, which override all permissions of files. */
export function becomeNobody(): void {
  if (process.getuid?.() !== 0) return
  process.setgroups?.([])
  process.setgid?.(NOBODY)
  process.setuid?.(NOBODY)
}

/** Simulates a machine on which files cannot be watched, or a file system that never reports changes. */
export function breakWatching(how: 'refused' | 'silent'): void {
  const silent = (): fs.FSWatcher => Object.assign(new EventEmitter(), { close: () => {} }) as unknown as fs.FSWatcher
  const refused = (): never => {
    throw Object.assign(new Error('ENOSPC: System limit for number of file watchers reached'), { code: 'ENOSPC' })
  }
  fs.watch = how === 'silent' ? silent : refused
  syncBuiltinESMExports()
}

/** An error as a message: its code, and those of what caused it. */
export interface SentError {
  readonly codes: readonly string[]
  readonly message: string
}

/** An error in words that a message can carry. */
export function errorToSend(error: unknown): SentError {
  const codes: string[] = []
  for (let each = error; each instanceof Error; each = each.cause) {
    const { code } = each as { code?: unknown }
    if (typeof code === 'string') codes.push(code)
  }
  return { codes, message: error instanceof Error ? error.message : String(error) }
}
