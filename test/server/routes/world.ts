// A server with a token for each role, and a queue with jobs in every state that the samples of operations need.
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { createToken, serve, tokenList } from 'millrace/server'
import type { Role, ServeOptions, Server } from 'millrace/server'
import { closing } from '../../setup.js'

/** The queue that the tokens of a world hold for; there is another one, 'other', that they do not hold for. */
export const QUEUE = 'mail'

/** Whose token: that of a role for `QUEUE`, an admin's for the other queue alone, or one for all queues. */
export type Who = Role | 'stranger' | 'everybody'

/** What a request is made of besides its method and path. */
export interface Parts {
  /** The parts of the path, by name. */
  readonly params?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Aborts when the client goes. */
  readonly signal?: AbortSignal
}

/** An answer that was read. */
export interface Read {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // oxlint-disable-next-line typescript/no-explicit-any -- tests look into answers of every route
  readonly body: any
}

/** A job that was claimed over REST. */
export interface Leased {
  readonly id: string
  readonly fence: number
}

/** A server and its queue. */
export interface World {
  readonly store: Store
  readonly server: Server
  readonly queue: Queue
  /** The token of somebody. */
  tokenOf(who: Who): string
  /** Sends a request; the path has its parameters in braces. */
  send(who: Who | undefined, method: string, path: string, parts?: Parts): Promise<Response>
  /** The same, and reads the answer. */
  ask(who: Who | undefined, method: string, path: string, parts?: Parts): Promise<Read>
  /** The id of a new job that waits. */
  waiting(data?: unknown): Promise<string>
  /** A new job that the worker `w1` of the token with the role `work` holds. */
  leased(data?: unknown): Promise<Leased>
  /** The id of a new job that has failed for good. */
  failed(): Promise<string>
}

const scopes: Readonly<Record<Who, { readonly roles: readonly Role[]; readonly queues: readonly string[] }>> = {
  read: { roles: ['read'], queues: [QUEUE] },
  produce: { roles: ['produce'], queues: [QUEUE] },
  work: { roles: ['work'], queues: [QUEUE] },
  admin: { roles: ['admin'], queues: [QUEUE] },
  stranger: { roles: ['admin'], queues: ['other'] },
  everybody: { roles: ['admin'], queues: ['*'] },
}

/** Makes a world over a store, by default one in memory. */
export function newWorld(options: Partial<ServeOptions> = {}): World {
  const store = options.store ?? closing(memory())
  const made = Object.entries(scopes).map(([name, scope]) => ({ name, ...createToken({ name, ...scope }) }))
  const tokens = new Map(made.map(({ name, token }) => [name, token]))
  const auth = tokenList(made.map(({ entry }) => entry))
  const server = closing(serve({ auth, logger: false, ...options, store }))
  const queue = closing(new Queue(QUEUE, { store, logger: false }))

  const send: World['send'] = (who, method, path, { params = {}, query, body, headers, signal } = {}) => {
    const filled = path.replace(/\{(\w+)\}/g, (_, key: string) => encodeURIComponent(params[key] ?? `no-${key}`))
    const search = query === undefined ? '' : `?${new URLSearchParams(query).toString()}`
    const request = new Request(`http://localhost${filled}${search}`, {
      method,
      headers: {
        ...(who !== undefined && { authorization: `Bearer ${tokens.get(who)}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal !== undefined && { signal }),
    })
    return server.fetch(request)
  }
  const ask: World['ask'] = async (who, method, path, parts) => {
    const response = await send(who, method, path, parts)
    const text = await response.text()
    const isJson = /json/.test(response.headers.get('content-type') ?? '')
    return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined }
  }
  const waiting: World['waiting'] = async (data = { to: 'ann' }) => (await queue.add('send', data)).id
  return {
    store,
    server,
    queue,
    tokenOf: (who) => tokens.get(who)!,
    send,
    ask,
    waiting,
    async leased(data) {
      const id = await waiting(data)
      const body = { worker: 'w1', queues: [QUEUE], max: 100 }
      const { jobs } = (await ask('work', 'POST', '/v1/claims', { body })).body as { readonly jobs: readonly Leased[] }
      return jobs.find((job) => job.id === id)!
    },
    async failed() {
      const { id } = await queue.add('send', null, { attempts: 1 })
      await (await queue.get(id))!.fail(new Error('as the sample needs it'))
      return id
    },
  }
}
