// The other process of the latency rows: it works, reports when each job started, and ends with its parent.
import { clock } from './latency.js'
import type { Message } from './latency.js'
import type { Mode } from '../measure/load.js'
import { subjectNamed } from '../contenders/by-name.js'

const [name = '', path = '', mode = 'full'] = process.argv.slice(2)
const send = (message: Message): void => void process.send?.(message)

const subject = await subjectNamed(name, path)
const session = await subject.open(path, mode as Mode)
await session.work((n) => send({ kind: 'started', n, at: clock() }))
process.once('disconnect', () => void session.close())
send({ kind: 'ready' })
