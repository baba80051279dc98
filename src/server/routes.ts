// server/routes.ts: the table of all routes: the router, the check of roles, and the documents are made of it.
import { aboutRoutes } from './routes/about.js'
import { claimRoutes } from './routes/claims.js'
import { flowRoutes } from './routes/flows.js'
import { producingRoutes } from './routes/producing.js'
import { resultRoutes } from './routes/results.js'
import { settlingRoutes } from './routes/settling.js'
import { storeRoutes } from './routes/store.js'
import { turnRoutes } from './routes/turn.js'
import { workerRoutes } from './routes/workers.js'
import { jobRoutes } from './routes/jobs.js'
import { operatingJobRoutes } from './routes/operating-jobs.js'
import { operatingManyRoutes } from './routes/operating-many.js'
import { operatingQueueRoutes } from './routes/operating-queues.js'
import { overviewRoutes } from './routes/overview.js'
import { queueRoutes } from './routes/queues.js'
import { searchRoutes } from './routes/search.js'
import { sessionRoutes } from './routes/session.js'
import { streamRoutes } from './routes/streams.js'
import type { Route } from './route.js'

/** All routes, in the order of the documents. */
export const routes: readonly Route[] = [
  ...aboutRoutes(() => routes),
  ...sessionRoutes,
  ...producingRoutes,
  ...flowRoutes,
  ...resultRoutes,
  ...claimRoutes,
  ...settlingRoutes,
  ...turnRoutes,
  ...workerRoutes,
  ...queueRoutes,
  ...jobRoutes,
  ...searchRoutes,
  ...overviewRoutes,
  ...streamRoutes,
  ...operatingJobRoutes,
  ...operatingManyRoutes,
  ...operatingQueueRoutes,
  ...storeRoutes,
]
