// server/routes.ts: the table of all routes: the router, the check of roles, and the documents are made of it.
import { aboutRoutes } from './routes/about.js'
import { storeRoutes } from './routes/store.js'
import type { Route } from './route.js'

/** All routes, in the order of the documents. */
export const routes: readonly Route[] = [...aboutRoutes(() => routes), ...storeRoutes]
