// Millrace on its PostgreSQL store.
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { millraceOn } from './millrace.js'

/** The store in the configuration of all rows. */
export const openStore = (url: string): Store => postgres(url)

/** Millrace on a database. */
export const millrace = millraceOn(openStore, { durability: () => 'fsync', bulks: 2 })
