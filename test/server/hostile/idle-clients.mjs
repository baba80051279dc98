// A process with many connections, each of which has asked once and is silent: node idle-clients.mjs <port> <count>.
import { connect } from 'node:net'
import process from 'node:process'

const [port, count] = process.argv.slice(2).map(Number)

/** Opens a connection and asks once. */
function open() {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n'))
    socket.once('data', resolve)
    socket.once('error', reject)
  })
}

for (let n = 0; n < count; n += 200) {
  await Promise.all(Array.from({ length: Math.min(200, count - n) }, open))
}
console.log('open')
