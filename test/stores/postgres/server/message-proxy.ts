// A proxy that reads the messages of PostgreSQL's protocol, and loses connections at the end of a chosen one.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

/** How connections are lost: all at once with a reset, as by a server that is killed; or the one alone, as if closed in order. */
export type Loss = 'reset' | 'close'

/** A proxy in front of a server on this machine. */
export interface Cutter {
  /** Messages that have passed, of both sides; settings that the server reports one after the other count as one. */
  readonly passed: number
  /** The same address by way of the proxy. */
  through(url: string): string
  /** Starts counting anew; at the end of this message connections are lost, once. */
  cutAt(message: number, how: Loss): void
  close(): void
}

const PARAMETER_STATUS = 'S'.charCodeAt(0)

/** Starts a proxy on a free port of 127.0.0.1, in front of another port there. */
export async function startCutter(to: number): Promise<Cutter> {
  const links = new Set<readonly [Socket, Socket]>()
  let passed = 0
  let cut: { readonly at: number; readonly how: Loss } | undefined

  const listener = createServer((near) => {
    const far = connect(to, '127.0.0.1')
    const link = [near, far] as const
    links.add(link)
    const count = (): void => {
      passed++
      if (cut === undefined || passed < cut.at) return
      const { how } = cut
      cut = undefined
      if (how === 'reset') return links.forEach(reset)
      near.end()
      far.destroy()
    }
    messages(near, true, (bytes) => {
      if (far.destroyed) return
      far.write(bytes)
      count()
    })
    let last = 0
    messages(far, false, (bytes) => {
      if (near.writableEnded || near.destroyed) return
      near.write(bytes)
      if (bytes[0] !== PARAMETER_STATUS || last !== PARAMETER_STATUS) count()
      last = bytes[0]!
    })
    near.on('close', () => far.destroy())
    far.on('close', () => near.end())
    for (const each of link) {
      each.setNoDelay(true)
      each.on('error', () => {})
      each.on('close', () => links.delete(link))
    }
  })
  const reset = ([near, far]: readonly [Socket, Socket]): void => {
    if (near.writableEnded) near.destroy() // a socket that is being shut down cannot be reset, and would stay
    else if (!near.destroyed) near.resetAndDestroy()
    far.destroy()
  }
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo

  return {
    get passed() {
      return passed
    },
    through: (url) => {
      const address = new URL(url)
      address.port = String(port)
      return address.href
    },
    cutAt: (at, how) => {
      passed = 0
      cut = { at, how }
    },
    close: () => {
      listener.close()
      links.forEach(reset)
    },
  }
}

/** Gives each message that arrives, whole. The first of a client has no type. */
function messages(from: Socket, isClient: boolean, took: (bytes: Buffer) => void): void {
  let held = Buffer.alloc(0)
  let isFirst = isClient
  from.on('data', (bytes: Buffer) => {
    held = Buffer.concat([held, bytes])
    for (;;) {
      const start = isFirst ? 0 : 1
      if (held.length < start + 4) return
      const length = start + held.readUInt32BE(start)
      if (held.length < length) return
      isFirst = false
      took(held.subarray(0, length))
      held = held.subarray(length)
    }
  })
}
