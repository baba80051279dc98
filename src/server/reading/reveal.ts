// server/reading/reveal.ts: how a caller sees jobs: with secrets hidden, or as they are, which an admin may ask for.
import { MillraceError } from '../../job/errors/errors.js'
import { authorize } from '../auth.js'
import { REVEALS } from '../redact.js'
import type { Redactor } from '../redact.js'
import type { Answer, Call, Route } from '../route.js'
import { described, flag, optional } from '../shape.js'

/** The query parameter of routes that show what jobs hold. */
export const revealField = {
  reveal: optional(described(flag, 'show what is hidden: for admins, and recorded by the audit')),
} as const

type RevealCall = Call<unknown, { readonly reveal?: boolean }>

/** Runs the work of a route with the redactor of the caller. What is revealed is recorded before it is read. */
export async function showing(
  route: Pick<Route, 'method' | 'path' | 'queueOf'>,
  call: RevealCall,
  work: (redactor: Redactor) => Promise<Answer>,
): Promise<Answer> {
  const { server, principal, query } = call
  if (query.reveal !== true) return work(server.redactor)
  authorize(principal, ['admin'])
  if (server.readOnly) {
    throw new MillraceError('READ_ONLY', 'This server is read-only, and revealing secrets would write an audit entry.')
  }
  const queue = call.params['queue'] ?? (await route.queueOf?.(call))
  const about = { action: 'reveal', route: `${route.method} ${route.path}`, queue }
  return server.audit.around(about, call, () => work(REVEALS))
}
