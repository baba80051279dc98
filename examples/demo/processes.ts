// examples/demo/processes.ts: starts the processes of the demo, receives their messages, and makes sure that all of them end.
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'

/** A message of a process of the demo to its parent. */
export type Message =
  | { readonly worker: string }
  | { readonly error: string }
  | { readonly acknowledged: readonly string[] }

/** One process. */
export interface DemoProcess {
  readonly name: string
  readonly process: ChildProcess
  /** Resolves with its first message, and rejects if it ends without one. */
  readonly ready: Promise<Message>
  /** Resolves when it has ended. */
  readonly gone: Promise<unknown>
}

/** Sends a message to the parent process, if there is one. */
export function send(message: Message): void {
  if (process.connected) process.send?.(message)
}

/** Starts a process. It ends when its connection to this one closes. */
export function start(
  name: string,
  file: string,
  path: string,
  onMessage: (message: Message) => void = () => {},
): DemoProcess {
  const child = fork(new URL(file, import.meta.url), [path], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const gone = once(child, 'close')
  const ready = new Promise<Message>((resolve, reject) => {
    child.on('message', (message) => {
      resolve(message as Message)
      onMessage(message as Message)
    })
    child.once('close', (code) => reject(new Error(`The ${name} ended with code ${String(code)} before it was done.`)))
    child.once('error', reject)
  })
  ready.catch(() => {}) // rejections reach the caller that awaits it
  return { name, process: child, ready, gone }
}

/** Whether a process exists. */
function isRunning({ process: child }: DemoProcess): boolean {
  return child.exitCode === null && child.signalCode === null
}

/** Asks all of them to end, and kills them after a while. */
export async function stopAll(processes: readonly DemoProcess[]): Promise<void> {
  const left = processes.filter(isRunning)
  for (const { process: child } of left) child.kill('SIGTERM')
  const timer = setTimeout(() => left.forEach(({ process: child }) => child.kill('SIGKILL')), 5_000)
  await Promise.all(left.map(({ gone }) => gone))
  clearTimeout(timer)
}
