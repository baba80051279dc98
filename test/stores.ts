// One store of each kind, for what must hold on all of them.
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { closing } from './setup.js'
import { everywhere } from './transactions/everywhere.js'
import type { Kind as Transacting } from './transactions/everywhere.js'

/** The kinds of stores. */
export type Kind = 'memory' | Extract<Transacting, 'SQLite' | 'PostgreSQL'>

/** All of them. */
export const kinds: readonly Kind[] = ['memory', 'SQLite', 'PostgreSQL']

/** Makes stores of every kind, each with nothing in it, open, and closed after the test. */
export function stores(): (kind: Kind) => Promise<Store> {
  const transacting = everywhere()
  return async (kind) => (kind === 'memory' ? closing(memory()) : transacting(kind))
}
