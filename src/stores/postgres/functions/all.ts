// stores/postgres/functions/all.ts: all SQL functions of the schema. `{V}` in their names stands for the version of the schema:
// a newer library adds its own functions beside these.
import { fastAdd } from './fast-add.js'
import { addJob } from './add-job.js'
import { fastClaim } from './fast-claim.js'
import { commit } from './commit.js'
import { edges, reopened } from './edges.js'
import { groups } from './groups.js'
import { helpers } from './helpers.js'
import { pages } from './pages.js'
import { reads, watching } from './reads.js'

/** The SQL that creates every function that the store calls. */
export const functions = `${helpers}${groups}${edges}${reopened}${commit}${fastClaim}${fastAdd}${reads}${pages}${watching}${addJob}`
