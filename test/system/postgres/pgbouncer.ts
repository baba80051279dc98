// A real PgBouncer in front of a server, in transaction mode: what a session has set, prepared or listens to is gone
// with its transaction.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { guarded } from '../../stores/postgres/server/guard.js'
import { serverUser } from '../../stores/postgres/server/installation.js'
import { freePort } from '../../stores/postgres/server/free-port.js'

/** A running pooler. */
export interface Bouncer {
  /** The server's address by way of the pooler. */
  readonly url: string
  readonly port: number
  /** The address of any database of the server by way of the pooler. */
  through(url: string): string
  close(): Promise<void>
}

/** Settings of `pgbouncer.ini`. */
interface BouncerSettings {
  /** Default: a free port. */
  readonly listen_port?: number
  /** Connections to the server for each database. */
  readonly default_pool_size?: number
}

/** Starts a pooler in front of the server of a URL; resolves when it takes connections. */
export async function startBouncer(server: string, settings: BouncerSettings = {}): Promise<Bouncer> {
  const { hostname, port: behind, username, password } = new URL(server)
  const user = serverUser() // it refuses to run as root
  const folder = mkdtempSync(join(tmpdir(), 'millrace-pgbouncer-'))
  const guard = guarded(folder, 'remove')
  const options = {
    listen_addr: '127.0.0.1',
    listen_port: settings.listen_port ?? (await freePort()),
    unix_socket_dir: '',
    auth_type: 'scram-sha-256',
    auth_file: join(folder, 'users.txt'),
    pool_mode: 'transaction',
    default_pool_size: settings.default_pool_size ?? 20,
    max_client_conn: 500,
    server_lifetime: 10, // a backend gets slow that has seen hundreds of schemas come and go
  }
  chmodSync(folder, 0o755)
  writeFileSync(options.auth_file, `"${username}" "${password}"\n`, { mode: 0o644 })
  const lines = Object.entries(options).map(([name, value]) => `${name} = ${value}`)
  const file = join(folder, 'pgbouncer.ini')
  writeFileSync(file, `[databases]\n* = host=${hostname} port=${behind}\n[pgbouncer]\n${lines.join('\n')}\n`)

  const child = spawn('pgbouncer', [file], { ...user, detached: true, stdio: ['ignore', 'ignore', 'pipe'] })
  let log = ''
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', () => guard.began(child.pid!))
    child.once('error', (cause) => reject(new Error('PgBouncer does not start: is it installed?', { cause })))
    child.once('close', () => reject(new Error(`PgBouncer has ended: ${log}`)))
    child.stderr.on('data', (chunk) => {
      log += String(chunk)
      if (log.includes('process up')) resolve()
    })
  }).catch((error: unknown) => {
    guard.close()
    throw error
  })

  const through = (url: string): string => {
    const address = new URL(url)
    address.port = String(options.listen_port)
    return address.href
  }
  return {
    url: through(server),
    port: options.listen_port,
    through,
    close: async () => {
      const gone = once(child, 'close')
      child.kill('SIGTERM')
      await gone
      guard.ended(child.pid!)
      guard.close()
    },
  }
}
