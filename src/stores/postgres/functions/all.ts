// stores/postgres/functions/all.ts: every function of the schema. They are versioned by name: a newer library adds its own beside.
import { add } from './fast-add.js'
import { addJob } from './add-job.js'
import { claims } from './fast-claim.js'
import { commit } from './commit.js'
import { edges, reopened } from './edges.js'
import { groups } from './groups.js'
import { helpers } from './helpers.js'
import { pages } from './pages.js'
import { reads, watching } from './reads.js'

/** What the statements of the store call. */
export const functions = `${helpers}${groups}${edges}${reopened}${commit}${claims}${add}${reads}${pages}${watching}${addJob}`
