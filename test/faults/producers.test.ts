// Producers killed in mid-add: what was acknowledged is there, and nothing is there by half.
import { expect, test } from 'vitest'
import type { JobRecord } from '../../src/job/job.js'
import { sqlite } from '../../src/sqlite.js'
import { closing } from '../setup.js'
import { checkFile, linesOf, soundAccountOf, states } from './account.js'
import { BULK, GROUP, dataOf } from './programs/producer-jobs.js'
import { scene, start } from './processes.js'
import type { ProducerInput, ProducerMessage } from './programs/producer.js'

const path = scene()

/** After how many acknowledged batches each producer is killed, two at a time on one file. */
const MOMENTS = [
  [1, 2],
  [3, 5],
  [4, 7],
  [8, 6],
  [9, 10],
] as const

/** The jobs of one bulk or group, by its name, as the places that they have in it. */
function placesBy(jobs: readonly JobRecord[], kind: string): ReadonlyMap<string, readonly number[]> {
  const found = new Map<string, number[]>()
  for (const { id, name } of jobs) {
    if (name !== kind) continue
    const [, whole, place] = /^(.*)-(\d+)$/.exec(id)!
    const places = found.get(whole!) ?? []
    places.push(Number(place))
    found.set(whole!, places)
  }
  return found
}

test(
  'a producer killed in mid-bulk leaves what was acknowledged, and nothing by half',
  { timeout: 120_000 },
  async () => {
    for (const [round, moments] of MOMENTS.entries()) {
      const producers = moments.map((_, at) => {
        const input: ProducerInput = { path: path('jobs.db'), ledger: path('ledger'), name: `p${round}${at}` }
        return start<ProducerMessage>('producer', input)
      })
      await Promise.all(producers.map((producer) => producer.received('loaded')))
      for (const producer of producers) producer.send({ kind: 'go' })
      await Promise.all(
        producers.map(async (producer, at) => {
          await producer.received('acknowledged', ({ batches }) => batches === moments[at])
          expect(await producer.kill()).toMatchObject({ signal: 'SIGKILL' })
        }),
      )
    }

    const store = closing(sqlite(path('jobs.db')))
    const { jobs } = await soundAccountOf(store)
    expect(states(jobs)).toEqual({ waiting: jobs.length })
    const there = new Set(jobs.map(({ id }) => id))
    expect(there.size).toBe(jobs.length)
    expect(jobs.filter(({ id, data }) => data !== JSON.stringify(dataOf(id)))).toEqual([])

    const acknowledged = linesOf(path('ledger'))
    const wholes = (kind: string): readonly string[] =>
      acknowledged.filter(([verb]) => verb === kind).map(([, name, n]) => `${name}-${kind}-${n}`)
    const inOrder = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i)

    // Every single add that was acknowledged is there.
    expect(acknowledged.filter(([verb, id]) => verb === 'single' && !there.has(id!))).toEqual([])

    // A group is there whole, acknowledged or not.
    const groups = placesBy(jobs, 'group')
    for (const name of wholes('group')) expect(groups.has(name)).toBe(true)
    for (const places of groups.values()) expect(places).toEqual(inOrder(GROUP))

    // A bulk that was acknowledged is there whole; another as far as it came, in order and without gaps.
    const bulks = placesBy(jobs, 'bulk')
    for (const name of wholes('bulk')) expect(bulks.get(name)?.length).toBe(BULK)
    for (const places of bulks.values()) expect(places).toEqual(inOrder(places.length))

    await store.close()
    expect(await checkFile(path('jobs.db'))).toEqual(['ok'])
  },
)
