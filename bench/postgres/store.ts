// Millrace on its PostgreSQL store.
import { postgres } from 'millrace/postgres'
import { millraceOn } from '../millrace.js'

/** Millrace on a database. */
export const millrace = millraceOn((url) => postgres(url), { durability: () => 'fsync', bulks: 2 })
