// Programs that tests start and that must not outlive them, however they end.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** What ends a program if this process goes without having done so. */
export interface Guard {
  /** A program runs. */
  began(pid: number): void
  /** It has ended. */
  ended(pid: number): void
  /** All is done, and the folder is removed if it was not to be kept. */
  close(): void
}

/** A process that ends registered servers if this process goes without having done so. */
export function guarded(folder: string, after: 'remove' | 'keep'): Guard {
  const program = fileURLToPath(new URL('end-server.mjs', import.meta.url))
  const guard = spawn(process.execPath, [program, folder, after], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  guard.unref()
  guard.stdin.on('error', () => {})
  return {
    began: (pid) => void guard.stdin.write(`+${pid}\n`),
    ended: (pid) => void guard.stdin.write(`-${pid}\n`),
    close: () => void guard.stdin.end(),
  }
}
