// Ends the server of a process that is gone, however it went, and removes its folder if that is not to be kept. Its
// standard input registers servers, `+pid` and `-pid` a line; the end of that input is the end of the process that writes it.
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const [folder = '', after] = process.argv.slice(2)
const pids = new Set()

for await (const line of createInterface({ input: process.stdin })) {
  if (line.startsWith('+')) pids.add(Number(line.slice(1)))
  else pids.delete(Number(line.slice(1)))
}
for (const pid of pids) await end(pid)
if (after === 'remove') rmSync(folder, { recursive: true, force: true, maxRetries: 5 })

/** SIGQUIT ends a server with all its backends at once, without a checkpoint; its last act is to remove its pid file. */
async function end(pid) {
  try {
    process.kill(pid, 'SIGQUIT')
    for (let rounds = 500; rounds > 0 && existsSync(join(folder, 'data/postmaster.pid')); rounds -= 1) {
      process.kill(pid, 0)
      await sleep(20)
    }
  } catch {
    // It is gone.
  }
}
