// engine/commit.ts: a commit in progress, as the steps of the engine share it.
import type { Time } from '../job/job.js'
import type { Notices } from './notices.js'
import type { Workspace } from './workspace.js'

/** A commit in progress. */
export interface Commit {
  readonly workspace: Workspace
  /** The store's clock, which is the same for the whole commit. */
  readonly now: Time
  readonly notices: Notices
}
