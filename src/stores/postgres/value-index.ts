// stores/postgres/value-index.ts: the index of the values in data and results of a queue's jobs, which a search is answered from.
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { Driver } from './drivers/driver.js'
import { quoteIdentifier } from './migrate.js'

/** The answer of `search_index`. */
export interface IndexAnswer {
  readonly queue: number | null
  readonly index: 'none' | 'building' | 'broken' | 'ready'
}

/** What the index is built with. */
interface IndexSource {
  readonly schema: string
  readonly driver: Pick<Driver, 'alone'>
  /** Calls `search_index`. */
  look(queue: string, wanted: boolean): Promise<IndexAnswer>
}

/**
 * Adds the index of a queue, or drops it, without a lock that would block others. A build that was interrupted leaves an index
 * that nobody uses, and that the next call replaces.
 */
export async function indexValues(
  { schema, driver, look }: IndexSource,
  queue: string,
  wanted: boolean,
): Promise<void> {
  const found = await look(queue, wanted)
  if (found.queue === null || found.index === (wanted ? 'ready' : 'none')) return
  if (found.index === 'building') throw isBuilding(queue)
  const name = `job_search_${found.queue}`
  const own = quoteIdentifier(schema)
  if (found.index !== 'none') await driver.alone(`drop index concurrently if exists ${own}.${name}`)
  if (!wanted) return
  await driver
    .alone(
      `create index concurrently ${name} on ${own}.job using gin (${own}.search_document(data, result) jsonb_path_ops) where queue = ${found.queue}`,
    )
    .catch((error: unknown) => {
      throw (error as { readonly code?: unknown }).code === '42P07' ? isBuilding(queue) : error
    })
}

function isBuilding(queue: string): MillraceError {
  return new MillraceError(
    'DATABASE_LOCKED',
    `Another process is building the search index of ${quote(queue)}. Call queue.searchIndex again when it is done; searches use the index from then on.`,
  )
}
