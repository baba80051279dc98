// A route of Next for all paths below the base.
import { server } from '../../../../../server.mjs'

export const dynamic = 'force-dynamic'
export const { GET, POST, PUT, PATCH, DELETE } = server.next()
