// What the tests of database files share: a fresh folder, the drivers there are, and other processes.
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach } from 'vitest'
import { isMillraceError } from '../../../src/job/errors/errors.js'
import type { MillraceError } from '../../../src/job/errors/errors.js'
import { driverNames, loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import type { DatabaseClass, DriverName, SqliteHandle } from '../../../src/stores/sqlite/file/driver.js'
import { collect } from '../../collecting.js'
import type { Errand, Report } from './open-program.js'

/** The drivers that can be had here, each by its name. better-sqlite3 is no part of the project; one installed is tried. */
export const drivers: readonly { readonly name: DriverName; readonly Driver: DatabaseClass }[] = (
  await Promise.all(driverNames.map(async (name) => ({ name, Driver: await loadDriver(name).catch(() => undefined) })))
).flatMap(({ name, Driver }) => (Driver ? [{ name, Driver }] : []))

/** A handle with options of its driver. */
export function handleWith(Driver: DatabaseClass, path: string, options: object): SqliteHandle {
  return new (Driver as new (path: string, options: object) => SqliteHandle)(path, options)
}

/** A fresh folder for each test, which other users may enter; removed afterwards. Answers the path of a name in it. */
export function freshFolder(): (name?: string) => string {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-sqlite-'))
    chmodSync(folder, 0o777)
  })
  afterEach(() => {
    chmodSync(folder, 0o777)
    rmSync(folder, { recursive: true, force: true })
  })
  return (name = '') => join(folder, name)
}

/** The error of Millrace that a promise rejects with. */
export async function refusal(promise: Promise<unknown>): Promise<MillraceError> {
  try {
    await promise
  } catch (error) {
    if (isMillraceError(error)) return error
    throw error
  }
  throw new Error('was not refused')
}

/**
 * The files under a path that this process holds open, garbage aside: `@photostructure/sqlite` 1 closes a connection
 * only once its statements are collected. Only Linux lists them; elsewhere the list is empty.
 */
export async function heldOpen(path: string): Promise<string[]> {
  if (process.platform !== 'linux') return []
  await collect()
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const file = readlinkSync(`/proc/self/fd/${fd}`)
      return file.startsWith(path) ? [file] : []
    } catch {
      return [] // closed meanwhile
    }
  })
}

/** Runs errands, each in a process of its own; they start together once all are ready. */
export async function send(
  errands: readonly Errand[],
): Promise<{ readonly report: Report; readonly stderr: string }[]> {
  const program = fileURLToPath(new URL('open-program.ts', import.meta.url))
  const runs = errands.map((errand) => {
    const child = spawn(process.execPath, ['--import', 'tsx', program, JSON.stringify(errand)])
    let stdout = ''
    let stderr = ''
    child.stderr.on('data', (chunk) => (stderr += String(chunk)))
    const exit = new Promise<void>((resolve) => child.on('close', () => resolve()))
    const ready = new Promise<void>((resolve) => {
      child.stdout.on('data', (chunk) => {
        stdout += String(chunk)
        if (stdout.startsWith('ready\n')) resolve()
      })
    })
    const start = (): void => void child.stdin.end('go\n')
    const end = async (): Promise<{ report: Report; stderr: string }> => {
      await exit
      const [, report = ''] = stdout.split('\n')
      if (report === '') throw new Error(`the process ended without a report: ${stderr}`)
      return { report: JSON.parse(report) as Report, stderr }
    }
    return { ready: Promise.race([ready, exit]), start, end }
  })
  await Promise.all(runs.map(({ ready }) => ready))
  for (const { start } of runs) start()
  return Promise.all(runs.map(({ end }) => end()))
}
