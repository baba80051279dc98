// store/batch-size.ts: how much goes into one batch, in changes and in bytes.
import type { Change, Insert, MoveFields, Note } from '../job/change.js'
import type { Ask, Group, Renewal } from './store.js'

/** Bytes of text that a batch holds at most, about; a single larger group is sent alone. */
export const BATCH_BYTES = 8 * 2 ** 20

/** The number of changes that a group adds to a batch. Releases do not count: most of them find no dependents. */
export function weightOf(group: Group): number {
  let weight = 0
  for (const { kind } of group) if (kind !== 'release') weight++
  return Math.max(1, weight)
}

/** About how many bytes a group carries: the length of all text in it. */
export function bytesOf(group: Group): number {
  let bytes = 0
  for (const change of group) bytes += textInChange(change)
  return bytes
}

/** About how many bytes renewals carry. */
export function bytesOfRenewals(renewals: readonly Renewal[]): number {
  let bytes = 0
  for (const { id } of renewals) bytes += id.length
  return bytes
}

/** About how many bytes a claim carries. */
export function bytesOfAsk(ask: Ask): number {
  return textIn(ask)
}

function textInChange(change: Change): number {
  switch (change.kind) {
    case 'insert':
      return textInInsert(change)
    case 'move':
      return change.id.length + textInFields(change.set) + (change.waitsFor === undefined ? 0 : textIn(change.waitsFor))
    case 'note':
      return change.id.length + textInNote(change)
    case 'put':
      return change.key.length + (change.value?.length ?? 0) + textIn(change.events)
    case 'release':
      return change.chain.length
  }
}

/** Spelled out, and only rare fields counted by `textIn`: it runs once for every job added. */
function textInInsert({ job, edges }: Insert): number {
  let bytes = job.id.length + job.queue.length + job.name.length + job.chainId.length + (job.data?.length ?? 0)
  if (job.parentId !== undefined) bytes += job.parentId.length
  if (job.group !== undefined) bytes += job.group.length
  if (job.dedup !== undefined) bytes += job.dedup.key.length
  if (job.backoff !== undefined) bytes += textIn(job.backoff)
  if (job.extras !== undefined) bytes += textIn(job.extras)
  for (const { on } of edges) bytes += on.length
  return bytes
}

function textInFields({ result, data, memo, error }: MoveFields): number {
  const bytes = (result?.length ?? 0) + (data?.length ?? 0) + (memo?.length ?? 0)
  return error == null ? bytes : bytes + textIn(error)
}

function textInNote({ progress, data, memo, about, logs, steps, events }: Note): number {
  let bytes = (progress?.length ?? 0) + (data?.length ?? 0) + (memo?.length ?? 0) + (about?.length ?? 0)
  if (logs !== undefined) for (const line of logs) bytes += line.length
  if (steps !== undefined) bytes += textIn(steps)
  if (events !== undefined) bytes += textIn(events)
  return bytes
}

/** The length of all text in a value of plain data, without the names of its fields. */
function textIn(value: unknown): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  let bytes = 0
  for (const each of Object.values(value)) bytes += textIn(each)
  return bytes
}

/** Splits groups into portions small enough to send at once, in order; at least one portion. */
export function portionsOf(groups: readonly Group[], most = BATCH_BYTES): readonly (readonly Group[])[] {
  let portion: Group[] = []
  let bytes = 0
  const portions = [portion]
  for (const group of groups) {
    const more = bytesOf(group)
    if (portion.length > 0 && bytes + more > most) {
      portions.push((portion = []))
      bytes = 0
    }
    portion.push(group)
    bytes += more
  }
  return portions
}
