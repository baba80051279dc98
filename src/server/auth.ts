// server/auth.ts: finds out who sent a request, and whether they may do what it asks for.
import { MillraceError } from '../job/errors/errors.js'
import { mustBe } from '../job/values/options.js'
import { ROLES, hasRole } from './principal.js'
import type { Principal, Role } from './principal.js'

/**
 * Who sent a request; undefined: nobody that is known. It may read the headers, and not the body. `tokens(path)` makes
 * one; a host with sessions of its own gives a function. For an open stream it is asked every 15 s again, with the request
 * that opened it.
 */
export interface Auth {
  (request: Request): Principal | undefined | Promise<Principal | undefined>
  /** @internal The caller by the SHA-256 of a token, for sessions of browsers. Absent: the host has its own. */
  readonly byHash?: (hash: string) => Principal | undefined | Promise<Principal | undefined>
}

/** The caller where the server has no `auth`: somebody on this machine. */
const LOCAL: Principal = { name: 'local', roles: ROLES, queues: ['*'] }

/** The names of callers: they begin the ids of their workers, and are written in the audit. */
export const PRINCIPAL_NAME = /^[\w.-]{1,64}$/

/** The secret of a request: what follows `Bearer` in its header. */
export function bearerOf(request: Request): string | undefined {
  const header = request.headers.get('authorization')
  return header === null ? undefined : /^bearer +([\x21-\x7e]{1,512})$/i.exec(header)?.[1]
}

/** The caller of a request, by its token or, without one, by its session. Throws UNAUTHORIZED where there is none. */
export async function authenticate(
  auth: Auth | undefined,
  request: Request,
  sessions: { find(request: Request): Promise<Principal | undefined> },
): Promise<Principal> {
  if (auth === undefined) return LOCAL
  const header = request.headers.has('authorization')
  let principal: Principal | undefined
  try {
    const found = (await auth(request)) ?? (header ? undefined : await sessions.find(request))
    principal = found && checkPrincipal(found)
  } catch (error) {
    // Its fault is not the caller's, who learns nothing of it: a file that cannot be read, a mistake of the host.
    throw new Error('serve: auth failed', { cause: error })
  }
  if (principal !== undefined) return principal
  throw new MillraceError(
    'UNAUTHORIZED',
    header
      ? 'The server does not know that token, or it has expired.'
      : 'The request has no token: send the header `authorization: Bearer <token>`.',
  )
}

/** Throws unless the caller has one of the roles. */
export function authorize(principal: Principal, roles: readonly Role[]): void {
  if (roles.some((role) => hasRole(principal, role))) return
  throw new MillraceError(
    'FORBIDDEN',
    `'${principal.name}' lacks the role for this: it needs ${roles.join(' or ')}, and has ${principal.roles.join(', ') || 'none'}.`,
  )
}

/** Checks what a host's own function returned: a mistake in it must not open anything. */
function checkPrincipal(principal: Principal): Principal {
  const { name, roles, queues } = principal
  const valid =
    typeof name === 'string' &&
    PRINCIPAL_NAME.test(name) &&
    Array.isArray(roles) &&
    roles.every((role) => ROLES.includes(role)) &&
    Array.isArray(queues) &&
    queues.every((queue) => typeof queue === 'string')
  if (valid) return principal
  throw mustBe('serve: auth', 'a function that returns { name, roles, queues }', principal)
}
