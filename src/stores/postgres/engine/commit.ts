// stores/postgres/engine/commit.ts: applies a batch by the engine: reads its working set, decides, and writes, in two calls.
import { Notices } from '../../../engine/notices.js'
import { applyChanges } from '../../../engine/reduce.js'
import { busy } from '../../../engine/verdicts.js'
import type { JobRecord } from '../../../job/job.js'
import type { Batch, Receipt, Verdict } from '../../../store/store.js'
import { answerOf } from '../decode.js'
import type { CommitAnswer } from '../decode.js'
import { PostgresWorkspace } from './workspace.js'
import type { WorkspaceContext } from './workspace.js'
import { lanesIn, workingSetOf } from './working-set.js'
import type { Request, WorkingSet } from './working-set.js'
import { countsOf, noticesOf, placedIn, receiptTexts, writesOf } from './writes.js'

/** How often to decide again because the working set has changed, before all groups are refused as busy. */
const TRIES = 10

/** What the engine made of a batch, and the answer of the server to it. */
export interface Applied {
  /** Undefined if the batch was applied before: `answer` is its stored receipt. */
  readonly verdicts?: Pick<Receipt, 'groups' | 'renewals'>
  readonly answer: CommitAnswer
  /** Records in the verdicts whose payloads were not loaded. */
  readonly unread: ReadonlySet<JobRecord>
}

/** The store, as far as this needs it. */
export interface EngineSource extends WorkspaceContext {
  /** Calls `working_set` or `commit`. */
  call(name: 'working_set' | 'commit', body: object): Promise<string>
  /** Looks up the names of lanes. */
  recognise(lanes: ReadonlySet<number>): Promise<void>
}

const NONE: ReadonlySet<JobRecord> = new Set()

/**
 * Applies the groups and renewals of a batch, then its claims. `head` is what both calls need: the writer and its
 * number, or the user transaction. Each time that others have changed the working set meanwhile, it decides again.
 */
export async function commitByEngine(
  batch: Batch,
  request: Request,
  head: object,
  asks: readonly object[],
  source: EngineSource,
): Promise<Applied> {
  let text = await source.call('working_set', { ...head, asked: request })
  for (let tries = 0; tries < TRIES; tries++) {
    const set = workingSetOf(text)
    if (set === undefined) return { answer: answerOf(text), unread: NONE }
    await source.recognise(lanesIn(set))
    const { verdicts, unread, body } = decide(batch, set, source)
    text = await source.call('commit', { ...head, asked: request, ...body, a: asks })
    if (workingSetOf(text) !== undefined) continue
    const answer = answerOf(text)
    return answer.again === true ? { answer, unread: NONE } : { verdicts, answer, unread }
  }
  return refuseAll(batch, workingSetOf(text)!.now)
}

/** Decides a batch over its working set: the verdicts, and the body of the call that writes them. */
function decide(
  batch: Batch,
  set: WorkingSet,
  context: WorkspaceContext,
): Required<Pick<Applied, 'verdicts' | 'unread'>> & { readonly body: object } {
  const workspace = new PostgresWorkspace(set, context)
  const notices = new Notices(workspace, set.now, set.fixed.recording)
  const verdicts = applyChanges({ workspace, now: set.now, notices }, batch)
  for (const [lane] of set.extra.shared) {
    const { queue, name } = context.lane(lane)
    notices.jobWaits(queue, name)
  }
  const body = {
    at: set.now,
    seen: set.seen,
    writes: writesOf(workspace),
    counts: countsOf(workspace),
    orders: placedIn(workspace, set.extra.shared),
    ...noticesOf(notices),
    ...receiptTexts(batch.groups, verdicts, workspace),
  }
  return { verdicts, unread: workspace.unread, body }
}

/** Refuses everything: others keep changing what the batch needs. Nothing was written. */
function refuseAll(batch: Batch, now: number): Applied {
  const refuse = (id: string): Verdict => busy(id)
  const groups = batch.groups.map(([change]) => {
    if (change === undefined || change.kind === 'release') return refuse('')
    return refuse(change.kind === 'insert' ? change.job.id : change.kind === 'put' ? change.key : change.id)
  })
  const answer = {
    now,
    groups: [],
    renewals: [],
    asks: batch.asks.map(() => []),
    events: 0,
    work: [],
    due: [],
    revoked: [],
    orders: [],
  }
  return { verdicts: { groups, renewals: batch.renewals.map(({ id }) => refuse(id)) }, answer, unread: NONE }
}
