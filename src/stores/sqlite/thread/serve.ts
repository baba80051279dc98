// stores/sqlite/thread/serve.ts: answers the calls that come over a channel by a store.
import type { Stop } from '../../../store/runtime.js'
import type { Store } from '../../../store/store.js'
import { failures, watching, wire } from '../../../store/wire/wire.js'
import type { Codec } from '../../../store/wire/wire.js'
import type { Method, Port, Request, Response } from './messages.js'

/** Calls a store with a text, and answers with one. Called in the order in which calls come. */
type Calls = { readonly [Name in Method]: (body: string) => Promise<string> }

/** Serves a store over a channel. */
export function serveStore(store: Store, port: Port<Request, Response>): void {
  const calls = callsOf(store)
  const watches = new Map<number, Stop>()
  port.on('message', (message) => {
    const { id } = message
    switch (message.kind) {
      case 'call':
        calls[message.method](message.body).then(
          (body) => port.postMessage({ kind: 'answer', id, body }),
          (error: unknown) => port.postMessage({ kind: 'failure', id, body: failures.encode(error) }),
        )
        return
      case 'watch':
        watches.set(
          id,
          store.watch(watching.request.decode(message.body), (notice) =>
            port.postMessage({ kind: 'notice', id, body: watching.notice.encode(notice) }),
          ),
        )
        return
      case 'stop':
        watches.get(id)?.()
        watches.delete(id)
    }
  })
  port.postMessage({ kind: 'ready' })
}

function callsOf(store: Store): Calls {
  const call = <Asked, Answered>(
    { request, answer }: { request: Codec<Asked>; answer: Codec<Answered> },
    work: (asked: Asked) => Promise<Answered>,
  ): ((body: string) => Promise<string>) => {
    return async (body) => answer.encode(await work(request.decode(body)))
  }
  return {
    open: call(wire.open, () => store.open().then(() => undefined)),
    close: call(wire.close, () => store.close().then(() => undefined)),
    commit: call(wire.commit, (batch) => store.commit(batch)),
    get: call(wire.get, (ids) => store.get(ids)),
    find: call(wire.find, (query) => store.find(query)),
    details: call(wire.details, (query) => store.details(query)),
    tally: call(wire.tally, ({ queues, options }) => store.tally(queues, undefined, options)),
    due: call(wire.due, (query) => store.due(query)),
  }
}
