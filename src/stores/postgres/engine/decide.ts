// stores/postgres/engine/decide.ts: applies a batch by the engine: over its working set in two calls, or over a predicted one in
// one call.
import { Notices } from '../../../engine/notices.js'
import { applyChanges } from '../../../engine/reduce.js'
import type { JobRecord } from '../../../job/job.js'
import type { Draft } from '../../../job/record.js'
import type { Batch, Receipt } from '../../../store/store.js'
import { answerOf, placedAt } from '../decode.js'
import type { CommitAnswer } from '../decode.js'
import type { Prediction } from '../fast-commit.js'
import type { FindNames } from '../lane-ids.js'
import { PostgresWorkspace } from './workspace.js'
import type { WorkspaceContext } from './workspace.js'
import { lanesIn, workingSetOf } from './working-set.js'
import type { Request, WorkingSet } from './working-set.js'
import { countsOf, noticesOf, placedIn, receiptTexts, writesOf } from './writes.js'

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
  /**
   * Calls `working_set`, then `commit` with the body that `decide` makes of the answer, both in one transaction; without a
   * body, only the first. Returns the last answer.
   */
  exchange(body: object, decide: (text: string, names: FindNames) => Promise<object | undefined>): Promise<string>
  /** Looks up the names of lanes. */
  recognise(lanes: ReadonlySet<number>, names: FindNames): Promise<void>
  /** A working set was read. */
  loaded(set: WorkingSet): void
}

export const NONE: ReadonlySet<JobRecord> = new Set()

/**
 * Applies the groups and renewals of a batch, then its claims. `head` is what both calls need: the writer and its number,
 * or the user transaction.
 */
export async function commitByEngine(
  batch: Batch,
  request: Request,
  head: object,
  asks: readonly object[],
  source: EngineSource,
): Promise<Applied> {
  let decided: ReturnType<typeof decide> | undefined
  const text = await source.exchange({ ...head, asked: request }, async (loaded, names) => {
    const set = workingSetOf(loaded)
    if (set === undefined) return undefined // it was applied before
    source.loaded(set)
    await source.recognise(lanesIn(set), names)
    decided = decide(batch, set, source)
    return { ...head, loaded: true, ...decided.body, a: asks }
  })
  const answer = answerOf(text)
  if (decided === undefined) return { answer, unread: NONE }
  return { verdicts: decided.verdicts, answer, unread: decided.unread }
}

/**
 * Applies a batch over its predicted working set; `send` calls `fast_commit`. Undefined, and nothing is done, if the
 * prediction is wrong or does not suffice.
 */
export async function commitPredicted(
  batch: Batch,
  { set, known }: Prediction,
  head: object,
  asks: readonly object[],
  context: WorkspaceContext,
  send: (body: object) => Promise<string | null>,
): Promise<Applied | undefined> {
  const { verdicts, unread, body } = decide(batch, set, context)
  if (unread.size > 0 || ![...verdicts.groups, ...verdicts.renewals].every(({ ok }) => ok)) return undefined
  const text = await send({ ...head, known, ...body, a: asks })
  if (text === null) return undefined
  const answer = answerOf(text)
  for (const verdict of verdicts.groups) {
    for (const job of verdict.ok ? verdict.inserted : []) (job as Draft).ord = placedAt(job.ord, answer.base)
  }
  return { verdicts, answer, unread: NONE }
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
    writes: writesOf(workspace),
    counts: countsOf(workspace),
    orders: placedIn(workspace, set.extra.shared),
    ...noticesOf(notices),
    ...receiptTexts(batch.groups, verdicts, workspace),
  }
  return { verdicts, unread: workspace.unread, body }
}
