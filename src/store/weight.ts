// store/weight.ts: how much goes into one batch, in changes and in bytes.
import type { Change } from '../job/change.js'
import type { Group } from './store.js'

/** Bytes of JSON in a batch at most, about; a single larger group travels alone. */
export const BATCH_BYTES = 8 * 2 ** 20

/** What a group adds to a batch: its changes, but for releases, which find nobody waiting in most cases. */
export function weightOf(group: Group): number {
  let weight = 0
  for (const { kind } of group) if (kind !== 'release') weight++
  return Math.max(1, weight)
}

/** About how many bytes a group carries: the length of what users put into it. */
export function bytesOf(group: Group): number {
  let bytes = 0
  for (const change of group) bytes += textIn(change)
  return bytes
}

function textIn(change: Change): number {
  switch (change.kind) {
    case 'insert':
      return change.job.data?.length ?? 0
    case 'move':
      return (change.set.result?.length ?? 0) + (change.set.data?.length ?? 0)
    case 'note': {
      let bytes = (change.progress?.length ?? 0) + (change.data?.length ?? 0)
      if (change.logs !== undefined) for (const line of change.logs) bytes += line.length
      return bytes
    }
    case 'put':
      return change.value?.length ?? 0
    case 'release':
      return 0
  }
}

/** Groups that go one after the other, in portions that are not too large to be sent at once; one portion at least. */
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
