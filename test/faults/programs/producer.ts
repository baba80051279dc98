// A program that adds jobs in every way at once, and writes down in a ledger what was acknowledged, as it is.
import { Queue } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { insert } from '../../../src/conformance/changes.js'
import { connect } from '../../../src/store/connection.js'
import { input, ledger, once, send } from './messages.js'
import { observed } from '../../observed-store.js'
import { BULK, GROUP, dataOf } from './producer-jobs.js'

/** What the program is to do. */
export interface ProducerInput {
  readonly path: string
  readonly ledger: string
  /** Begins the ids of its jobs. */
  readonly name: string
}

/** What the program sends: the store has acknowledged so many batches. */
export type ProducerMessage = { readonly kind: 'loaded' } | { readonly kind: 'acknowledged'; readonly batches: number }

/** Single adds in flight at a time. */
const IN_FLIGHT = 100

async function produce({ path, ledger: file, name }: ProducerInput): Promise<void> {
  const { write } = ledger(file)
  const own = sqlite(path)
  let batches = 0
  const store = observed(own, () => send({ kind: 'acknowledged', batches: ++batches } satisfies ProducerMessage))
  const queue = new Queue('work', { store, logger: false })

  const bulks = async (): Promise<never> => {
    for (let n = 0; ; n++) {
      const ids = Array.from({ length: BULK }, (_, i) => `${name}-bulk-${n}-${i}`)
      await queue.addBulk(ids.map((id) => ({ name: 'bulk', data: dataOf(id), options: { id } })))
      write('bulk', name, n)
    }
  }
  const groups = async (): Promise<never> => {
    for (let n = 0; ; n++) {
      const ids = Array.from({ length: GROUP }, (_, i) => `${name}-group-${n}-${i}`)
      const changes = ids.map((id) => insert(id, 'group', { queue: 'work', data: dataOf(id) }))
      const verdict = await connect(store).main.commit(changes)
      if (verdict.ok) write('group', name, n)
    }
  }
  const singles = async (lane: number): Promise<never> => {
    for (let n = 0; ; n++) {
      const id = `${name}-single-${lane}-${n}`
      await queue.add('single', dataOf(id), { id })
      write('single', id)
    }
  }
  await Promise.all([bulks(), groups(), ...Array.from({ length: IN_FLIGHT }, (_, lane) => singles(lane))])
}

send({ kind: 'loaded' } satisfies ProducerMessage)
await once('go')
await produce(input() as ProducerInput)
