// stores/sqlite/fast-paths.ts: the plain cases that are written many at a time: adds (fast-add.ts) and completions
// (fast-complete.ts). Each has the effect of the engine, which applies everything else; a test sends random batches both
// ways.
import type { Group, Verdict } from '../../store/store.js'
import type { FastPaths } from '../../engine/workspace.js'
import { addTogether, equalNewJobs } from './fast-add.js'
import { completeTogether } from './fast-complete.js'
import { MIN_TOGETHER } from './statement-texts.js'
import type { SqliteWorkspace } from './workspace.js'

/** Maximum number of groups to leave to the engine after they could not be written together. */
const MAX_ONE_BY_ONE = 50

const NONE: readonly never[] = Object.freeze([])

/** The fast paths of one commit. */
export function fastPaths(workspace: SqliteWorkspace): FastPaths {
  /** Inserts of the groups before this index could not be written together. */
  let insertsFrom = 0
  return {
    groups(commit, groups, from) {
      const completed = completeTogether(workspace, commit, groups, from)
      if (completed.length > 0 || from < insertsFrom) return completed
      const newJobs = equalNewJobs(groups.length - from, (at) => soleChange(groups[from + at]!))
      if (newJobs.length < MIN_TOGETHER) return NONE
      const records = addTogether(workspace, commit, newJobs)
      insertsFrom = from + records.length + Math.min(newJobs.length - records.length, MAX_ONE_BY_ONE)
      return records.map((record): Verdict => ({ ok: true, inserted: [record] }))
    },
    inserts(commit, group, from) {
      const newJobs = equalNewJobs(group.length - from, (at) => group[from + at])
      return newJobs.length < MIN_TOGETHER ? NONE : addTogether(workspace, commit, newJobs)
    },
  }
}

function soleChange(group: Group): Group[number] | undefined {
  return group.length === 1 ? group[0] : undefined
}
