// A TCP proxy that does to connections what networks do: it passes, delays, freezes, cuts and refuses them.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

/** A proxy in front of a server on this machine. */
export interface Proxy {
  readonly port: number
  /** How many connections stand, frozen ones included. */
  readonly connections: number
  /** Resolves when the next connection is made. */
  next(): Promise<void>
  /** Lets everything through, what was held by a freeze as well, and takes connections again. */
  pass(): Promise<void>
  /** Everything that arrives from now on goes on this much later, in order. */
  delay(ms: number): void
  /**
   * Nothing is forwarded or reported: bytes are taken and held, connections are taken and lead nowhere, and the end of one
   * side does not reach the other. With `standing`, connections made from now on pass.
   */
  freeze(which?: 'all' | 'standing'): void
  /** Mutes each connection, standing or new, that sends this text, in any case of its letters; resolves at the first. Until `pass`. */
  muteAt(text: string): Promise<void>
  /** On open connections, what the server sends is held back, while all that is sent to it arrives. */
  mute(): void
  /** Resets all standing connections, towards both sides. */
  cut(): void
  /** Refuses new connections; those that stand are left alone. */
  refuse(): void
  /** The same address by way of the proxy. */
  through(url: string): string
  close(): void
}

/** One connection: two sockets, and what is on its way. */
interface Link {
  frozen: boolean
  muted: boolean
  readonly ends: readonly [Socket, Socket]
  pump(): void
}

/** Starts a proxy on a free port of 127.0.0.1, in front of another port there. */
export async function startProxy(to: number): Promise<Proxy> {
  const links = new Set<Link>()
  let frozen = false
  let late = 0
  let trap: ((bytes: Buffer, link: Link) => void) | undefined

  const listener = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ port: to, host: '127.0.0.1', allowHalfOpen: true })
    const link: Link = { frozen, muted: false, ends: [near, far], pump: () => lanes.forEach((lane) => lane()) }
    const isHeld = [() => link.frozen, () => link.frozen || link.muted] as const
    const lanes = [carry(near, far, isHeld[0], () => late), carry(far, near, isHeld[1], () => late)]
    links.add(link)
    near.prependListener('data', (bytes: Buffer) => trap?.(bytes, link)) // before they are carried on
    for (const each of link.ends) {
      each.setNoDelay(true)
      each.on('error', () => {})
      each.on('close', () => {
        if (!link.frozen) cut(link)
        if (near.destroyed && far.destroyed) links.delete(link)
      })
    }
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo

  function cut(link: Link): void {
    for (const each of link.ends) if (!each.destroyed) each.resetAndDestroy()
    links.delete(link)
  }
  /** Takes effect at once; its own 'close' event would wait for standing connections. */
  const stopListening = (): void => void (listener.listening && listener.close())

  return {
    port,
    get connections() {
      return links.size
    },
    next: () => new Promise((resolve) => void listener.once('connection', () => resolve())),
    pass: async () => {
      frozen = false
      late = 0
      trap = undefined
      for (const link of links) {
        link.frozen = link.muted = false
        if (link.ends.some((each) => each.destroyed)) cut(link)
        else link.pump()
      }
      if (listener.listening) return
      listener.listen(port, '127.0.0.1')
      await once(listener, 'listening')
    },
    delay: (ms) => void (late = ms),
    freeze: (which = 'all') => {
      frozen = which === 'all'
      for (const link of links) link.frozen = true
    },
    muteAt: (text) =>
      new Promise((resolve) => {
        trap = (bytes, link) => {
          if (!bytes.toString('latin1').toLowerCase().includes(text.toLowerCase())) return
          link.muted = true
          resolve()
        }
      }),
    mute: () => links.forEach((link) => (link.muted = true)),
    cut: () => links.forEach(cut),
    refuse: stopListening,
    through: (url) => {
      const address = new URL(url)
      address.port = String(port)
      return address.href
    },
    close: () => {
      stopListening()
      links.forEach(cut)
    },
  }
}

/** Carries bytes one way; answers what sends on as much as may go by now. */
function carry(from: Socket, to: Socket, isHeld: () => boolean, late: () => number): () => void {
  const held: { readonly due: number; readonly bytes: Buffer | undefined }[] = []
  const arrived = (bytes?: Buffer): void => {
    const wait = late()
    held.push({ due: performance.now() + wait, bytes })
    if (wait > 0) setTimeout(pump, wait + 1)
    else pump()
  }
  const pump = (): void => {
    while (!isHeld() && held[0] && held[0].due <= performance.now()) {
      const { bytes } = held.shift()!
      if (bytes) to.write(bytes)
      else to.end()
    }
  }
  from.on('data', arrived)
  from.on('end', () => arrived())
  return pump
}
