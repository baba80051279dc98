// The other process of the latency rows: works, says when each job started, and ends with its parent.
import { clock } from './latency.js'
import type { Word } from './latency.js'
import type { Mode } from '../measure/load.js'
import { subjectNamed } from '../contenders/by-name.js'

const [name = '', path = '', mode = 'full'] = process.argv.slice(2)
const say = (word: Word): void => void process.send?.(word)

const subject = await subjectNamed(name, path)
const session = await subject.open(path, mode as Mode)
await session.work((n) => say({ kind: 'started', n, at: clock() }))
process.once('disconnect', () => void session.close())
say({ kind: 'ready' })
