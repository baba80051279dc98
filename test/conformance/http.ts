// Remote stores for the suite: a server over another store, and clients of it. The clock is that of the store behind.
import { http } from 'millrace/http'
import type { Harness, MakeHarness } from '../../src/conformance/harness.js'
import type { Store } from '../../src/store/store.js'
import { serveStore } from '../stores/http/bare-server.js'

/** The harness of another store with a server and its clients between. */
export async function httpHarness(behind: MakeHarness): Promise<Harness> {
  const inner = await behind()
  const server = await serveStore(inner.store)
  const clients: Store[] = []
  const open = async (): Promise<Store> => {
    const store = http(server.url)
    clients.push(store)
    await store.open()
    return store
  }
  return {
    ...inner,
    store: await open(),
    peer: open,
    async dispose() {
      await Promise.all(clients.map((store) => store.close()))
      await server.close()
      await inner.dispose()
    },
  }
}
