// A real PostgreSQL for tests: on a free port of 127.0.0.1, with a folder of its own. It can be stopped, killed and
// started again on the same data and port, and it does not outlive the process that started it.
import { execFileSync, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { clusterIn, copyOf } from './cluster.js'
import type { Cluster } from './cluster.js'
import { guarded } from './guard.js'
import type { Guard } from './guard.js'
import { newest, serverUser } from './installation.js'
import { freePort } from './free-port.js'

/** Settings of `postgresql.conf`, by name. */
type Settings = Readonly<Record<string, string | number>>

/** How to start a server. */
export interface ServerOptions {
  /** The major version. Default: the one that MILLRACE_POSTGRES names, or the newest. */
  readonly major?: number
  /** Further settings; fsync and synchronous_commit are on by default. */
  readonly settings?: Settings
  /** Default: a free one. */
  readonly port?: number
  /** A folder that is kept, and used again if it holds a server's data. Default: a temporary one. */
  readonly folder?: string
  /** The folder of a cluster of the same major that was never started, to begin with a copy of. */
  readonly from?: string
}

/** A running server. */
export interface Server {
  /** Where a superuser connects. */
  readonly url: string
  readonly port: number
  readonly major: number
  /** Stops it as an administrator would: connections are ended, and all is written. */
  stop(): Promise<void>
  /** SIGKILL to the server and to all its backends at once, as if the machine had lost its power. */
  kill(): Promise<void>
  /** Starts it again, with other settings if they are given; resolves when it takes connections. */
  start(settings?: Settings): Promise<void>
  /** Ends it, and removes its folder unless that is to be kept. */
  close(): Promise<void>
  /** What it has logged since it was started last. */
  log(): string
}

const always: Settings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  lc_messages: 'C', // the log is read to know when it is ready
  max_connections: 200,
  shared_buffers: '128MB',
}

/** The major version that tests run on by default. */
export const usualMajor = Number(process.env['MILLRACE_POSTGRES'] ?? newest)

/** Starts a server; resolves when it takes connections. */
export async function startServer(options: ServerOptions = {}): Promise<Server> {
  const { major = usualMajor, from } = options
  const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'millrace-postgres-'))
  const guard = guarded(folder, options.folder === undefined ? 'remove' : 'keep')
  try {
    const cluster = from === undefined ? await clusterIn(folder, major) : await copyOf(from, folder)
    return await started(cluster, guard, { ...options, major }, folder)
  } catch (error) {
    guard.close()
    throw error
  }
}

async function started(
  { programs, data, password }: Cluster,
  guard: Guard,
  options: ServerOptions & { major: number },
  folder: string,
): Promise<Server> {
  const user = serverUser()
  let port = options.port ?? (await freePort())
  let settings = options.settings ?? {}
  let child: ChildProcess | undefined
  let log = ''

  /** Returns whether it runs; if not, its log has the reason. */
  async function launch(): Promise<boolean> {
    log = ''
    const lines = Object.entries({ ...always, port, ...settings }).map(([name, value]) => `-c${name}=${value}`)
    // In a group of its own, so that Ctrl-C reaches only the process that started it.
    const next = spawn(programs.postgres, ['-D', data, ...lines], {
      ...user,
      cwd: data,
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    if (next.pid !== undefined) guard.began(next.pid)
    next.once('exit', () => {
      if (next.pid !== undefined) guard.ended(next.pid)
      if (child === next) child = undefined
    })
    const ready = new Promise<boolean>((resolve, reject) => {
      next.once('error', reject)
      next.once('close', () => resolve(false))
      next.stderr.on('data', (chunk) => {
        log += String(chunk)
        if (log.includes('ready to accept connections')) resolve(true)
      })
    })
    child = next
    return ready
  }

  async function start(): Promise<void> {
    if (child) throw new Error('The server is running')
    for (let attempt = 1; !(await launch()); attempt += 1) {
      // Another process took the port meanwhile, or backends of a killed server are not gone yet.
      const passing = /could not bind|pre-existing shared memory|lock file/.test(log)
      if (!passing || attempt === 50) throw new Error(`PostgreSQL ${options.major} does not start: ${log}`)
      if (options.port === undefined && !everRan) port = await freePort()
      else await sleep(100)
    }
    everRan = true
  }

  async function end(signal: NodeJS.Signals): Promise<void> {
    if (!child) return
    const gone = once(child, 'close')
    const backends = signal === 'SIGKILL' ? childrenOf(child.pid!) : []
    child.kill(signal)
    for (const pid of backends) killQuietly(pid)
    await gone
  }

  let everRan = false
  await start()
  return {
    get url() {
      return `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
    },
    get port() {
      return port
    },
    major: options.major,
    stop: () => end('SIGINT'),
    kill: () => end('SIGKILL'),
    start: (next) => {
      settings = next ?? settings
      return start()
    },
    close: async () => {
      await end(options.folder === undefined ? 'SIGQUIT' : 'SIGINT')
      if (options.folder === undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
      guard.close()
    },
    log: () => log,
  }
}

function childrenOf(pid: number): number[] {
  const text =
    process.platform === 'linux'
      ? readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      : execFileSync('pgrep', ['-P', String(pid)], { encoding: 'utf8' })
  return text.split(/\s+/).filter(Boolean).map(Number)
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It went with its parent.
  }
}
