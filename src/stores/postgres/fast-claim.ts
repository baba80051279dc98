// stores/postgres/fast-claim.ts: encodes claims: for `fast_claim`, which handles queues without limits, and for `commit`.
import type { Ask } from '../../store/store.js'
import type { Value } from './drivers/driver.js'

/** The arguments of `fast_claim` for a batch that is one claim; undefined if a fast path cannot handle it. */
export function claimValues(
  { worker, queues, handles, want, ahead }: Ask,
  cursors: object | undefined,
): readonly Value[] | undefined {
  const named = handles.filter(({ name }) => name !== undefined)
  // Several handlers of one name for different versions, or one for some versions of all names: rare, so `commit` does it.
  if (handles.some(({ versions }) => versions !== undefined)) {
    if (new Set(named.map(({ name }) => name)).size < named.length) return undefined
    if (handles.some(({ name, versions }) => name === undefined && versions !== undefined)) return undefined
  }
  return [
    worker,
    arrayOf(queues),
    arrayOf(queues.map((queue) => `limit:${queue}`)),
    arrayOf(named.map(({ name }) => name!)),
    arrayOf(named.map(({ versions }) => (versions === undefined ? '' : `{${versions.join(',')}}`))),
    arrayOf(named.map(({ lease }) => String(lease))),
    handles.find(({ name }) => name === undefined)?.lease ?? null,
    Math.max(0, want),
    Math.max(0, ahead),
    cursors === undefined ? null : JSON.stringify(cursors),
  ]
}

/** Encodes texts as a PostgreSQL array literal. */
function arrayOf(texts: readonly string[]): string {
  return `{${texts.map((text) => `"${text.replaceAll(/["\\]/g, '\\$&')}"`).join(',')}}`
}

/** Encodes a claim for `commit`, with its cursors (see claim-cursors.ts). */
export function claimBody({ worker, queues, handles, want, ahead }: Ask, cursors: object | undefined): object {
  return {
    worker,
    queues,
    handles: handles.map(({ name, versions, lease }) => [name ?? null, versions ?? null, lease]),
    want,
    ahead,
    ...(cursors !== undefined && { cursors }),
  }
}
