// Another program at the same file: it locks the file on command, and unlocks it on command.
import { loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import { input, on, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface LockerInput {
  readonly path: string
  /** Keeps everybody else out, readers too; otherwise only those who write. */
  readonly alone?: boolean
}

/** What the program sends. */
export type LockerMessage = { readonly kind: 'locked' } | { readonly kind: 'released' }

const { path, alone } = input() as LockerInput
const Driver = await loadDriver()
const open = (): InstanceType<typeof Driver> => {
  const handle = new Driver(path)
  handle.exec(`PRAGMA busy_timeout = 10000; PRAGMA locking_mode = ${alone ? 'exclusive' : 'normal'}`)
  return handle
}
let handle = open()

const lock = (): void => {
  handle.exec('BEGIN EXCLUSIVE')
  if (alone) handle.exec('CREATE TABLE IF NOT EXISTS others (a)')
  send({ kind: 'locked' } satisfies LockerMessage)
}

on('lock', lock)
on('release', () => {
  handle.exec('COMMIT')
  if (alone) {
    // Only a connection that closes gives its lock up.
    handle.close()
    handle = open()
  }
  send({ kind: 'released' } satisfies LockerMessage)
})
untilFinished(async () => void handle.close())
lock()
