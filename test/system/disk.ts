// A small disk of memory that can be filled and freed. Only root can have one, on Linux.
import { spawnSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'

/** A mounted disk. */
export interface Disk {
  /** The path of a name on it. */
  path(name: string): string
  /** Leaves no space on it. */
  fill(): void
  /** Gives the space back. */
  free(): void
  /** Takes it away, even while it is in use. */
  unmount(): void
}

/** Mounts a disk of so many megabytes at a folder that is made for it. */
export function mountDisk(folder: string, megabytes: number): Disk {
  mkdirSync(folder)
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0777`, 'tmpfs', folder])
  if (mounted.status !== 0) {
    const reason = mounted.error?.message ?? String(mounted.stderr).trim()
    throw new Error(
      `The tests of full disks mount a small tmpfs, which was refused: ${reason}. Run them as root on Linux.`,
    )
  }
  const filler = join(folder, 'filler')
  return {
    path: (name) => join(folder, name),
    fill: () => {
      const file = openSync(filler, 'a')
      for (const size of [65_536, 4096, 1]) while (fits(file, size));
      closeSync(file)
    },
    free: () => rmSync(filler),
    unmount: () => {
      const { status, stderr } = spawnSync('umount', [folder])
      if (status === 0) return
      spawnSync('umount', ['--lazy', folder])
      throw new Error(`The disk was still in use: ${String(stderr).trim()}`)
    },
  }
}

function fits(file: number, size: number): boolean {
  try {
    return writeSync(file, Buffer.alloc(size)) === size
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return false
    throw error
  }
}
