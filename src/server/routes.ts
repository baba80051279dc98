// server/routes.ts: the table of all routes: the router, the check of roles, and the documents are made of it.
import { aboutRoutes } from './routes/about.js'
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
  ...queueRoutes,
  ...jobRoutes,
  ...searchRoutes,
  ...overviewRoutes,
  ...streamRoutes,
  ...operatingJobRoutes,
  ...operatingManyRoutes,
  ...operatingQueueRoutes,
]
