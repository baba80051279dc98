// Millrace on its SQLite store.
import type { Store } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import type { Mode } from '../measure/load.js'
import { millraceOn } from './millrace.js'

/** The store in the configuration of all rows. */
export const openStore = (path: string, mode: Mode): Store => sqlite(path, { synchronous: mode })

/** Millrace on a file. */
export const millrace = millraceOn(openStore, { durability: (mode) => mode, bulks: 1 })
