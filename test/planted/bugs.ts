// The catalogue of planted bugs: over every room, and at least two for each guarantee.
import type { Bug } from './bug.js'
import { jobBugs } from './job-bugs.js'
import { postgresBugs } from './postgres-bugs.js'
import { serverBugs } from './server-bugs.js'
import { sqliteBugs } from './sqlite-bugs.js'
import { storeBugs } from './store-bugs.js'
import { workerBugs } from './worker-bugs.js'

export const bugs: readonly Bug[] = [
  ...jobBugs,
  ...storeBugs,
  ...sqliteBugs,
  ...postgresBugs,
  ...workerBugs,
  ...serverBugs,
]
