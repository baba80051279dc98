// Run by Bun: its own server calls the handler of the package.
import { listening, server } from './server.mjs'

const { port } = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: server.fetch })
listening(port)
