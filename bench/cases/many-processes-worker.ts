// One of several processes that drain a database together.
import { Ledger, keyOf } from '../measure/load.js'
import type { BenchWorker } from '../contenders/millrace.js'
import type { Command, Message } from './many-processes.js'
import { millrace } from '../contenders/millrace-postgres.js'

/** How often this process reports its progress, in milliseconds. */
const EVERY = 10

const send = (message: Message): void => void process.send?.(message)

let worker: BenchWorker | undefined
let ledger = new Ledger(0)
let ended = 0
const report = (): void => {
  if (ended > 0) send({ kind: 'ended', jobs: ended })
  ended = 0
}
const reporting = setInterval(report, EVERY)

async function follow(command: Command): Promise<void> {
  if (command.kind === 'open') {
    ledger = new Ledger(command.most)
    worker = await millrace.createWorker(command.url, 'full', {
      ran: (id) => ledger.ran(keyOf(id)),
      ended: () => ended++,
    })
    send({ kind: 'ready' })
  } else if (command.kind === 'run') {
    await worker?.run()
  } else {
    await worker?.close()
    worker = undefined
    send({ kind: 'ran', keys: ledger.keys() })
  }
}

process.on('message', (command: Command) => {
  follow(command).catch((error: unknown) => {
    console.error(error)
    process.exit(1)
  })
})
process.once('disconnect', () => {
  clearInterval(reporting)
  void worker?.close()
})
