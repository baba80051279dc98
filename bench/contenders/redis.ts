// Starts a Redis for BullMQ, in memory only.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Places } from '../measure/scratch-files.js'
import { peer } from './peers.js'

/** A running Redis. It holds one database at a time: each path is empty, or filled again. */
export interface Redis extends Places {
  readonly version: string
  close(): Promise<void>
}

/** The part of ioredis that is used. */
interface Client {
  connect(): Promise<void>
  flushall(): Promise<unknown>
  info(section: string): Promise<string>
  disconnect(): void
}

/** Whether the machine has a redis-server. */
export function hasRedis(): boolean {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  probe.close()
  await once(probe, 'close')
  return port
}

/** Starts one on a free port; it ends with this process. */
export async function startRedis(): Promise<Redis> {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'millrace-redis-'))
  const settings = {
    port,
    bind: '127.0.0.1',
    dir: folder,
    save: '',
    appendonly: 'no',
    'maxmemory-policy': 'noeviction',
  }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
  const server = spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const end = (): void => {
    server.kill('SIGKILL') // it has nothing to save
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', end)
  const gone = once(server, 'exit')
  let output = ''
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    void gone.then(() => reject(new Error(`Redis did not start: ${output}`)))
    server.stdout.on('data', (chunk) => {
      output += String(chunk)
      if (output.includes('Ready to accept connections')) resolve()
    })
  })
  const { Redis: IoRedis } = await peer<{ Redis: new (port: number, options: unknown) => Client }>(
    'ioredis/built/index.js',
  )
  const client = new IoRedis(port, { lazyConnect: true })
  await client.connect()
  const url = `redis://127.0.0.1:${port}`
  const flush = async (): Promise<void> => void (await client.flushall())
  const fresh = async (): Promise<string> => {
    await flush()
    return url
  }
  return {
    version: /redis_version:(\S+)/.exec(await client.info('server'))?.[1] ?? 'unknown',
    fresh,
    async copy(_key, fill) {
      await fill(await fresh())
      return url
    },
    drop: flush,
    async close() {
      client.disconnect()
      process.off('exit', end)
      end()
      await gone
    },
  }
}
