// store/processes.ts: identifies this process, and checks whether another one on the same machine is gone.
import { readFileSync, readlinkSync } from 'node:fs'

/** Identifies a process for all time: the system reuses a pid alone. */
export interface Origin {
  /** The boot id of its machine. */
  readonly boot: string
  /** The namespaces of its pid and of its start time. */
  readonly namespace: string
  /** Its pid in that namespace, which the system reuses once the process is gone. */
  readonly pid: number
  /** When it started, in the kernel's clock ticks. */
  readonly start: string
}

/** What is known of the processes of this machine. */
export interface Processes {
  /** This process; undefined where it cannot be identified. */
  self(): Origin | undefined
  /**
   * Whether that process is known to be gone. False where that cannot be known: on another machine, in another
   * container.
   */
  gone(origin: Origin): boolean
}

/** Positions in a process's `stat`, counted after its name: its state, and its start time. */
const STATE = 0
const START = 19

/** Reads the processes from Linux's procfs. On other systems nothing is known. */
export function procfs(root = '/proc'): Processes {
  let known: Origin | undefined
  const self = (): Origin | undefined => {
    try {
      known ??= readSelf(root)
    } catch {
      // The files do not exist or cannot be read: nothing is known.
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
        return !exists(pid) // processes of other users may be hidden
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

/** The time namespace, whose clock start times are counted by, where the kernel has one. */
function timeOf(root: string): string {
  try {
    return readlinkSync(`${root}/self/ns/time`)
  } catch {
    return ''
  }
}

function readStat(root: string, pid: number): { readonly state: string; readonly start: string } {
  const text = readFileSync(`${root}/${pid}/stat`, 'utf8')
  // The name is in brackets and may contain anything, brackets too.
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
