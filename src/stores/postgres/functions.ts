// stores/postgres/functions.ts: every function of the schema. They are versioned by name: a newer library adds its own beside.
import { add } from './sql/add.js'
import { addJob } from './sql/add-job.js'
import { claims } from './sql/claims.js'
import { commit } from './sql/commit.js'
import { edges, reopened } from './sql/edges.js'
import { groups } from './sql/groups.js'
import { helpers } from './sql/helpers.js'
import { pages } from './sql/pages.js'
import { reads, watching } from './sql/reads.js'

/** What the statements of the store call. */
export const functions = `${helpers}${groups}${edges}${reopened}${commit}${claims}${add}${reads}${pages}${watching}${addJob}`
