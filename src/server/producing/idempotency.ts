// server/producing/idempotency.ts: the ids of jobs that are added under an `Idempotency-Key`. The key needs no table: it is
// the id, so that it survives restarts and counts for as long as the job is kept.
import { createHash } from 'node:crypto'
import { MillraceError } from '../../job/errors/errors.js'
import type { JobRecord } from '../../job/job.js'
import type { JsonText } from '../../job/values/json.js'
import type { Principal } from '../principal.js'
import { name } from '../shape.js'

const KEY = name('order-7')

/** The `Idempotency-Key` of a request; undefined: it has none. The draft writes it in quotes, and many clients without. */
export function idempotencyKey(request: Request): string | undefined {
  const header = request.headers.get('idempotency-key')
  if (header === null) return undefined
  return KEY.read(/^"(.*)"$/.exec(header)?.[1] ?? header, 'header.idempotency-key')
}

/** The id of the job at an index of a request under a key: a UUIDv8, the same whenever the same caller sends it again. */
export function idempotentId({ name: caller }: Principal, queue: string, key: string, index: number): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([caller, queue, key, index]))
    .digest()
  hash[6] = (hash[6]! & 0x0f) | 0x80 // version 8
  hash[8] = (hash[8]! & 0x3f) | 0x80 // the variant
  const hex = hash.toString('hex', 0, 16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

/** Throws unless the job that stands under a key was added with this name and data. */
export function checkSame(standing: JobRecord | undefined, job: string, data: JsonText | undefined): void {
  if (standing === undefined || (standing.name === job && standing.data === data)) return
  throw mismatch(standing.id)
}

/** The error of another request under the same key. */
export function mismatch(id: string): MillraceError {
  return new MillraceError(
    'IDEMPOTENCY_MISMATCH',
    `Job ${id} was added under this Idempotency-Key before, with another name or other data. Use a new key.`,
    { details: { id } },
  )
}
