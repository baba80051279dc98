// stores/postgres/functions/all.ts: all SQL functions of the schema. `{V}` in their names stands for the version of the schema:
// a newer library adds its own functions beside these.
import { addJob } from './add-job.js'
import { commit } from './commit.js'
import { fastAdd } from './fast-add.js'
import { fastClaim } from './fast-claim.js'
import { fastCommit } from './fast-commit.js'
import { fastComplete } from './fast-complete.js'
import { find } from './find.js'
import { groups } from './groups.js'
import { heads } from './heads.js'
import { helpers } from './helpers.js'
import { insertJob } from './insert-job.js'
import { load } from './load.js'
import { pages } from './pages.js'
import { reads, watching } from './reads.js'
import { write } from './write.js'

/** The SQL that creates every function that the store calls. */
export const functions = `${helpers}${groups}${load}${write}${commit}${fastCommit}${fastClaim}${fastAdd}${fastComplete}${reads}${heads}${pages}${find}${watching}${insertJob}${addJob}`
