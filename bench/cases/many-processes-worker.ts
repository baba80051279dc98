// One of several processes that drain a database together.
import { Ledger, keyOf } from '../measure/load.js'
import type { Hand } from '../contenders/millrace.js'
import type { Order, Word } from './many-processes.js'
import { millrace } from '../contenders/millrace-postgres.js'

/** How often it says how far it is, in milliseconds. */
const EVERY = 10

const say = (word: Word): void => void process.send?.(word)

let hand: Hand | undefined
let ledger = new Ledger(0)
let ended = 0
const report = (): void => {
  if (ended > 0) say({ kind: 'ended', jobs: ended })
  ended = 0
}
const reporting = setInterval(report, EVERY)

async function follow(order: Order): Promise<void> {
  if (order.kind === 'open') {
    ledger = new Ledger(order.most)
    hand = await millrace.hire(order.url, 'full', {
      ran: (id) => ledger.ran(keyOf(id)),
      ended: () => ended++,
    })
    say({ kind: 'ready' })
  } else if (order.kind === 'run') {
    await hand?.run()
  } else {
    await hand?.close()
    hand = undefined
    say({ kind: 'ran', keys: ledger.keys() })
  }
}

process.on('message', (order: Order) => {
  follow(order).catch((error: unknown) => {
    console.error(error)
    process.exit(1)
  })
})
process.once('disconnect', () => {
  clearInterval(reporting)
  void hand?.close()
})
