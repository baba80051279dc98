// stores/postgres/functions/all.ts: all SQL functions of the schema. `{V}` in their names stands for the version of the schema:
// a newer library adds its own functions beside these.
import { addJob } from './adds/add-job.js'
import { addMany } from './adds/add-many.js'
import { addOne } from './adds/add-one.js'
import { addShared } from './adds/add-shared.js'
import { checkOptions } from './adds/check-options.js'
import { dropJob } from './adds/drop-job.js'
import { insertJob } from './adds/insert-job.js'
import { claim } from './claims/claim.js'
import { drained } from './claims/drained.js'
import { fastClaim } from './claims/fast-claim.js'
import { fitting } from './claims/fitting.js'
import { laneHeads } from './claims/lane-heads.js'
import { leaseJobs } from './claims/lease-jobs.js'
import { openLanes } from './claims/open-lanes.js'
import { rateTokens } from './claims/rate-tokens.js'
import { beginCommit } from './commits/begin-commit.js'
import { commit } from './commits/commit.js'
import { fastCommit } from './commits/fast-commit.js'
import { fastComplete } from './commits/fast-complete.js'
import { keepReceipt } from './commits/keep-receipt.js'
import { load } from './commits/load.js'
import { manyEvents } from './commits/many-events.js'
import { workingSet } from './commits/working-set.js'
import { write } from './commits/write.js'
import { find } from './find.js'
import { heads } from './heads.js'
import { pages } from './pages.js'
import { queueLimits } from './queue-limits.js'
import { reads, watching } from './reads.js'
import { records } from './records.js'
import { summedCounts } from './summed-counts.js'
import { turns } from './turns.js'

/** The text of each file. SQL functions are checked when they are created, so they come after those that they call. */
export const functionFiles = {
  ...{ records, summedCounts, queueLimits, turns },
  ...{ beginCommit, keepReceipt, manyEvents, load, workingSet, write, commit, fastCommit, fastComplete },
  ...{ drained, fitting, laneHeads, rateTokens, openLanes, leaseJobs, claim, fastClaim },
  ...{ addOne, addMany, addShared, checkOptions, insertJob, dropJob, addJob },
  ...{ reads, heads, pages, find, watching },
}

/** Every function that the store calls. */
export const functions = Object.values(functionFiles).join('')
