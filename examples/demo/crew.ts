// examples/demo/crew.ts: the processes of the demo: how they are started, what they tell, and that none of them stays.
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'

/** What a process of the demo tells the one that started it. */
export type Message =
  | { readonly worker: string }
  | { readonly error: string }
  | { readonly acknowledged: readonly string[] }

/** One process. */
export interface Hand {
  readonly name: string
  readonly process: ChildProcess
  /** Resolves with its first message, and rejects if it ends without one. */
  readonly ready: Promise<Message>
  /** Resolves when it is gone. */
  readonly gone: Promise<unknown>
}

/** Tells the process that started this one, if there is one. */
export function send(message: Message): void {
  if (process.connected) process.send?.(message)
}

/** Starts a process. It knows that this one has died when the line between them is cut. */
export function start(
  name: string,
  file: string,
  path: string,
  onMessage: (message: Message) => void = () => {},
): Hand {
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
  ready.catch(() => {}) // whoever waits for it hears of it
  return { name, process: child, ready, gone }
}

/** Whether a process is there. */
function lives({ process: child }: Hand): boolean {
  return child.exitCode === null && child.signalCode === null
}

/** Asks all of them to end, and insists after a while. */
export async function dismiss(hands: readonly Hand[]): Promise<void> {
  const left = hands.filter(lives)
  for (const { process: child } of left) child.kill('SIGTERM')
  const insist = setTimeout(() => left.forEach(({ process: child }) => child.kill('SIGKILL')), 5_000)
  await Promise.all(left.map(({ gone }) => gone))
  clearTimeout(insist)
}
