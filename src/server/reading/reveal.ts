// server/reading/reveal.ts: how a caller sees jobs: with secrets hidden, or as they are, which an admin may ask for.
import { MillraceError } from '../../job/errors/errors.js'
import { authorize } from '../auth.js'
import type { Principal } from '../principal.js'
import { forbidden } from '../problem.js'
import { REVEALS } from '../redact.js'
import type { Redactor } from '../redact.js'
import type { Answer, Call, Route } from '../route.js'
import { described, flag, optional } from '../shape.js'

/** The query parameter of routes that show what jobs hold. */
export const revealField = {
  reveal: optional(described(flag, 'show what is hidden: for admins, and recorded by the audit')),
} as const

/** Who may also add or work on jobs knows what they hold; from others it is hidden. */
export function redactorFor({ roles }: Principal, redactor: Redactor): Redactor {
  return roles.some((role) => role !== 'read') ? REVEALS : redactor
}

/** Throws for a path to what is hidden: the answer to a search would tell it. Undefined in it is any index. */
export function refuseHidden(path: readonly (string | undefined)[], redactor: Redactor): void {
  if (!redactor.hidesPath(path)) return
  const shown = path.map((key) => key ?? '*').join('.')
  throw forbidden(`The server hides '${shown.slice(0, 200)}', so that jobs cannot be searched by it.`)
}

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
