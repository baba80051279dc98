// Run by Deno: its own server calls the handler of the package.
import { listening, server } from './server.mjs'

Deno.serve({ port: 0, hostname: '127.0.0.1', onListen: ({ port }) => listening(port) }, (request) =>
  server.fetch(request),
)
