// store/processes.ts: which process this is, and whether another one on the same machine is known to be gone.
import { readFileSync, readlinkSync } from 'node:fs'

/** A process as no other one ever was or will be: a pid alone is given out again. */
export interface Origin {
  /** The boot of the machine that it runs on. */
  readonly boot: string
  /** Where its pid means something. */
  readonly namespace: string
  /** Its number there, which is given out again once it is gone. */
  readonly pid: number
  /** When it began, in the kernel's own count. */
  readonly start: string
}

/** What can be told of the processes of this machine. */
export interface Processes {
  /** This process; undefined where that cannot be told. */
  self(): Origin | undefined
  /** Whether that process is known to be gone. False where it cannot be told: on another machine, in another container. */
  gone(origin: Origin): boolean
}

/** Where the start of a process stands in its `stat`, counted after its name, and its state before that. */
const STATE = 0
const START = 19

/** The processes as Linux tells of them. Elsewhere, nothing is known. */
export function procfs(root = '/proc'): Processes {
  let known: Origin | undefined
  const self = (): Origin | undefined => {
    try {
      known ??= readSelf(root)
    } catch {
      // No such files, or none that may be read: nothing is known.
    }
    return known
  }
  return {
    self,
    gone: ({ boot, namespace, pid, start }) => {
      const here = self()
      if (here === undefined || here.boot !== boot || here.namespace !== namespace) return false
      if (!Number.isSafeInteger(pid) || pid < 1) return false
      try {
        const stat = readStat(root, pid)
        return stat.start !== start || 'ZX'.includes(stat.state)
      } catch {
        return !exists(pid) // those of other users may be hidden
      }
    },
  }
}

function readSelf(root: string): Origin | undefined {
  const { pid } = process
  if (readlinkSync(`${root}/self`) !== String(pid)) return undefined // mounted for another namespace
  return {
    boot: readFileSync(`${root}/sys/kernel/random/boot_id`, 'utf8').trim(),
    namespace: `${readlinkSync(`${root}/self/ns/pid`)} ${timeOf(root)}`,
    pid,
    start: readStat(root, pid).start,
  }
}

/** Starts are counted by the clock of a namespace, where the kernel has such. */
function timeOf(root: string): string {
  try {
    return readlinkSync(`${root}/self/ns/time`)
  } catch {
    return ''
  }
}

function readStat(root: string, pid: number): { readonly state: string; readonly start: string } {
  const text = readFileSync(`${root}/${pid}/stat`, 'utf8')
  // The name stands in brackets and may hold anything, brackets too.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const [state, start] = [fields[STATE], fields[START]]
  if (state === undefined || start === undefined) throw new Error(`${root}/${pid}/stat cannot be read.`)
  return { state, start }
}

function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}
