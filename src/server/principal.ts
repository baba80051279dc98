// server/principal.ts: who sent a request: its roles, and the queues that they hold for.

/** What a caller may do. `admin` includes the others; `work` includes what handlers do besides: adding jobs. */
export type Role = 'read' | 'produce' | 'work' | 'admin'

/** All roles. */
export const ROLES = ['read', 'produce', 'work', 'admin'] as const satisfies readonly Role[]

/** The caller of a request, as its token or the host's `auth` identifies it. */
export interface Principal {
  /** Its name, 1 to 64 characters of `A-Z a-z 0-9 . _ -`: in the audit, and at the beginning of the ids of its workers. */
  readonly name: string
  /** What it may do. */
  readonly roles: readonly Role[]
  /** The queues that this holds for: names, in which each `*` stands for any characters. `['*']`: all. */
  readonly queues: readonly string[]
}

/** Whether the caller has a role, by itself or because it is an admin. */
export function hasRole({ roles }: Principal, role: Role): boolean {
  return roles.includes(role) || roles.includes('admin')
}

/** Whether the caller's roles hold for a queue. */
export function inScope({ queues }: Principal, queue: string): boolean {
  return queues.some((pattern) => matches(pattern, queue))
}

/** Whether the caller's roles hold for every queue. */
export function allQueues({ queues }: Principal): boolean {
  return queues.includes('*')
}

/** Compares a name with a pattern part by part, in time that is linear in both: a pattern may come from a file of tokens. */
function matches(pattern: string, name: string): boolean {
  const parts = pattern.split('*')
  const first = parts[0]!
  if (parts.length === 1) return name === first
  const last = parts.at(-1)!
  if (name.length < first.length + last.length || !name.startsWith(first) || !name.endsWith(last)) return false
  let at = first.length
  const end = name.length - last.length
  for (const part of parts.slice(1, -1)) {
    const found = name.indexOf(part, at)
    if (found === -1 || found + part.length > end) return false
    at = found + part.length
  }
  return true
}
