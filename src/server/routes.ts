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
import type { Route } from './route.js'

/** All routes, in the order of the documents. */
export const routes: readonly Route[] = [
  ...aboutRoutes(() => routes),
  ...producingRoutes,
  ...flowRoutes,
  ...resultRoutes,
  ...claimRoutes,
  ...settlingRoutes,
  ...turnRoutes,
  ...workerRoutes,
  ...storeRoutes,
]
