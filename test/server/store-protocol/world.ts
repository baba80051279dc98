// A server of the store protocol with a token for each role, over a memory store.
import { http } from 'millrace/http'
import { memory } from 'millrace/memory'
import { createToken, tokenList } from 'millrace/server'
import type { Role } from 'millrace/server'
import type { Store } from 'millrace'
import { closing } from '../../setup.js'
import { serveStore } from '../../stores/http/bare-server.js'
import type { BareServer } from '../../stores/http/bare-server.js'

/** Tokens by name: their roles, and the queues that these hold for. */
const scopes = {
  reader: [['read'], ['mail']],
  overseer: [['read'], ['*']],
  producer: [['produce'], ['mail']],
  worker: [['work'], ['mail']],
  other: [['work'], ['mail']],
  everywhere: [['work'], ['*']],
  stranger: [['work', 'read'], ['bills']],
  operator: [['admin'], ['mail']],
  admin: [['admin'], ['*']],
} as const satisfies Readonly<Record<string, readonly [readonly Role[], readonly string[]]>>

/** A plain job of the queue `mail`, without an id. */
export const spec = {
  kind: 'job',
  queue: 'mail',
  name: 'send',
  version: 1,
  data: '1',
  priority: 0,
  lifo: false,
  attempts: 3,
  backoff: undefined,
  timeout: undefined,
  run: undefined,
  parentId: undefined,
  group: undefined,
  dedup: undefined,
  keep: undefined,
  extras: undefined,
  edges: [],
} as const

/** The name of a token. */
export type TokenName = keyof typeof scopes

/** A store, and what each token sees of it. */
export interface ProtocolWorld {
  /** The store itself. */
  readonly store: Store
  readonly server: BareServer
  readonly tokens: ReadonlyMap<string, string>
  /** The remote store of a token, the same each time; its requests need no connection. */
  remote(name: TokenName): Store
}

/** Makes a world. */
export async function protocolWorld(store: Store = closing(memory())): Promise<ProtocolWorld> {
  const made = Object.entries(scopes).map(([name, [roles, queues]]) => ({
    name,
    ...createToken({ name, roles, queues }),
  }))
  const tokens = new Map(made.map(({ name, token }) => [name, token]))
  const server = closing(await serveStore(store, { auth: tokenList(made.map(({ entry }) => entry)) }))
  const remotes = new Map<string, Store>()
  return {
    store,
    server,
    tokens,
    remote(name) {
      let remote = remotes.get(name)
      if (remote === undefined) {
        const fetch = (url: string, init: RequestInit): Promise<Response> => server.fetch(new Request(url, init))
        remote = closing(http(server.url, { token: tokens.get(name)!, fetch }))
        remotes.set(name, remote)
      }
      return remote
    },
  }
}
