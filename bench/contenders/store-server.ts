// A program that serves a SQLite file to the bench: client and server are two processes.
import { serve } from 'millrace/server'
import { sqlite } from 'millrace/sqlite'
import type { Mode } from '../measure/load.js'

const { path, mode } = JSON.parse(process.argv[2]!) as { readonly path: string; readonly mode: Mode }
const store = sqlite(path, { synchronous: mode })
const server = serve({ store, logger: false })
const { url } = await server.listen({ port: 0 })
process.send?.(url)
process.once('disconnect', () => {
  void server
    .close()
    .then(() => store.close())
    .then(() => process.exit(0))
})
