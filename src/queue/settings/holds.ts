// queue/settings/holds.ts: holds that callers add and remove: no job of a queue, a name or a group starts until a time.
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import { LONGEST_HOLD, currentHolds, holdKey, scopeOf, storedHolds, tooManyHolds, withHolds } from '../../job/holds.js'
import type { HoldScope, StoredHold } from '../../job/holds.js'
import type { Time } from '../../job/job.js'
import { readCell } from '../../job/limits.js'
import type { PauseCell } from '../../job/limits.js'
import { holding } from '../../job/moves.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { invalid, isObject, positive } from '../../job/values/options.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Session } from '../../store/session.js'
import { cellKey, updateCell } from '../../store/settings.js'

/** What `queue.hold` and `queue.unhold` are about: one name, one group, or neither for the whole queue. */
export interface HoldTarget<Name extends string = string> {
  /** The jobs of this name. Default: of all names. */
  readonly name?: Name
  /** The jobs of this group; not together with `name`. Default: of all groups. */
  readonly group?: string
}

/** Options of `queue.hold`. */
export interface QueueHoldOptions<Name extends string = string> extends HoldTarget<Name> {
  /** Who holds the jobs, for `explain` and `queue.holds`, up to 255 characters. Default: no name. */
  readonly by?: string
}

/** A hold that has not ended. */
export interface Hold<Name extends string = string> {
  /** The name whose jobs are held; absent: of all names. */
  readonly name?: Name
  /** The group whose jobs are held; absent: of all groups. */
  readonly group?: string
  /** When it ends, by the store's clock. */
  readonly until: Time
  /** When it was added, or last extended. */
  readonly at: Time
  /** Who added it: the id of a worker, or the `by` of `queue.hold`. */
  readonly by?: string
  /** The job whose handler added it. */
  readonly job?: string
}

/** Adds a hold. Of two for the same jobs the one that ends later counts. */
export function* addHold(
  session: Session,
  queue: string,
  duration: Duration,
  options: QueueHoldOptions,
  checkJob: (name: string) => void,
): Steps<void> {
  const length = positive(duration, 'queue.hold')
  if (length > LONGEST_HOLD) {
    throw new MillraceError('INVALID_DURATION', 'queue.hold: a hold lasts a year at most. Use queue.pause for longer.')
  }
  const scope = parseTarget(options, ['by'], 'queue.hold', checkJob)
  const { by } = options
  if (by !== undefined) checkName(by, 'name of who holds jobs')
  const verdict = yield* step(
    session.commit([holding(queue, { ...scope, for: length, ...(by !== undefined && { by }) })]),
  )
  if (verdict.ok) return
  if (verdict.why === 'full') throw tooManyHolds(queue)
  throw new MillraceError('STORE_BUSY', `The holds of queue '${queue}' are being changed by others; try again.`)
}

/** Removes a hold. Returns whether there was one that had not ended. */
export function* removeHold(
  session: Session,
  queue: string,
  options: HoldTarget,
  now: Time,
  checkJob: (name: string) => void,
): Steps<boolean> {
  const key = holdKey(parseTarget(options, [], 'queue.unhold', checkJob))
  let found = false
  yield* updateCell(session, cellKey.pause(queue), (value) => {
    const cell: PauseCell = { all: false, names: [], ...readCell<PauseCell>(value) }
    const { [key]: hold, ...others } = storedHolds(cell.holds)
    found = hold !== undefined && hold.until > now
    return hold === undefined ? undefined : { value: withHolds(cell, others) }
  })
  return found
}

/** The holds of a queue that have not ended: of the queue, then of names, then of groups. */
export function* holdsOf(session: Pick<Session, 'details'>, queue: string, now: Time): Steps<readonly Hold[]> {
  const { cells } = yield* step(session.details({ cells: [cellKey.pause(queue)] }))
  return readHolds(readCell<PauseCell>(cells[0]?.value), now)
}

/** The holds in a cell of pauses that have not ended. */
export function readHolds({ holds }: Partial<PauseCell>, now: Time): readonly Hold[] {
  const order = ({ name, group }: Hold): number => (name !== undefined ? 1 : group !== undefined ? 2 : 0)
  const of = ([key, hold]: readonly [string, StoredHold]): Hold => ({ ...scopeOf(key), ...hold })
  return Object.entries(currentHolds(storedHolds(holds), now))
    .map(of)
    .toSorted((a, b) => order(a) - order(b))
}

function parseTarget(
  options: HoldTarget,
  others: readonly string[],
  where: string,
  checkJob: (name: string) => void,
): HoldScope {
  if (isObject(options) && 'of' in options) {
    throw new MillraceError(
      'UNKNOWN_OPTION',
      `${where} has no option 'of', which is one of ctx.hold: give the name or the group to hold, or neither for the whole queue.`,
      { details: { option: 'of', where } },
    )
  }
  refuseUnknown(options, ['name', 'group', ...others], where)
  const { name, group } = options
  if (name !== undefined && group !== undefined) {
    throw invalid(`${where}: give a name, a group or neither for the whole queue. Two calls hold both.`)
  }
  if (name !== undefined) checkJob(checkName(name, 'job name'))
  if (group !== undefined) checkName(group, 'group')
  return { ...(name !== undefined && { name }), ...(group !== undefined && { group }) }
}
