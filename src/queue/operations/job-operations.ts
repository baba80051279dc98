// queue/operations/job-operations.ts: operations on existing jobs: read, change by the lifecycle, wait for the result.
import { MillraceError, isMillraceError } from '../../job/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobHeader, JobRecord, LogLine } from '../../job/job.js'
import { encodeJson } from '../../job/json.js'
import type { JsonText } from '../../job/json.js'
import { cancel, isDenied, promote, remove, retry, update } from '../../job/lifecycle.js'
import type { Decision, Edit } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/names.js'
import { SIGNAL } from '../../job/signals.js'
import type { Connection } from '../../store/connection.js'
import { readDetails } from '../../store/read-pages.js'
import { step, runSteps } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Group, Refused, Tx, Verdict } from '../../store/store.js'
import type { StoreEvent } from '../../job/events.js'
import { awaitEnd, jobNotFound, jobRemoved } from './result.js'
import { cancelChildren, splitCascade, hasDependents, splitReason, removeDependents } from './cascade.js'
import type { CancelOptions, CascadeOptions } from './cascade.js'
import { withoutChainEnds, refuseChainEnd } from '../flows/chain-ends.js'
import { validate, versionOf } from '../define.js'
import type { JobDefinitions } from '../define.js'
import { EventSubscription } from '../events/subscription.js'
import { logPage } from './logs.js'
import type { LogOptions } from './logs.js'
import type { OperationResult, Job, JobActions, ObserveOptions, ResultOptions, UpdateOptions } from '../job.js'
import { observe } from './observe.js'
import { parseOptions, parseWhen } from '../add-options.js'
import { Rereader } from './reread.js'
import { sendSignal } from '../signals.js'
import { sessionFor } from '../../store/session.js'
import type { Session } from '../../store/session.js'
import { redeliverSteps } from '../settings/webhook.js'

/** Maximum retries of an operation when another writer moves the job first. */
const RACES = 100

/** The operations on jobs that a queue and its workers share. */
export class JobOperations implements JobActions {
  readonly connection: Connection
  readonly subscription: EventSubscription
  readonly rereader: Rereader
  /** The session of a call: in a transaction if one is given or the calling code is inside of one. */
  readonly session: (tx?: Tx) => Session
  readonly #jobs: JobDefinitions | undefined
  /** Maximum size of a job's data as JSON, in bytes. */
  readonly maxBytes: number
  /** Called on close, to end pending waits. */
  readonly #closeListeners = new Set<() => void>()
  #closed = false

  constructor(connection: Connection, jobs: JobDefinitions | undefined, maxBytes: number) {
    this.connection = connection
    this.session = sessionFor(connection)
    this.subscription = new EventSubscription(connection.store)
    this.rereader = new Rereader(connection)
    this.#jobs = jobs
    this.maxBytes = maxBytes
  }

  /** The payload as JSON, if the declared schema accepts it. Asynchronous only if the schema is. */
  encode(name: string, data: unknown): JsonText | undefined | Promise<JsonText | undefined> {
    const text = encodeJson(data, 'data', this.maxBytes)
    const schema = this.#jobs?.[name]?.input
    if (schema === undefined) return text
    const validation = validate(schema, data)
    return validation instanceof Promise
      ? validation.then((each) => accept(each, name, text))
      : accept(validation, name, text)
  }

  /** The current record of a job. */
  read(id: string): Promise<JobRecord> {
    return runSteps(this.readSteps(id, this.session()))
  }

  /** The current record of a job. */
  *readSteps(id: string, session: Session): Steps<JobRecord> {
    const record = yield* step(session.get(id))
    if (record === undefined || record.kind === SIGNAL) throw jobNotFound(id)
    return record
  }

  cancel(id: string, options?: CancelOptions): Promise<OperationResult> {
    const { reason, rest } = splitReason(options, 'job.cancel')
    const { cascade } = splitCascade(rest, 'job.cancel')
    return this.#run((session) => this.cancelSteps(id, session, { cascade, reason }))
  }

  /** Cancels a job, and then its children if it cascades. */
  *cancelSteps(
    id: string,
    session: Session,
    { cascade, reason }: { readonly cascade: boolean; readonly reason: string | undefined },
    known?: JobRecord,
  ): Steps<OperationResult> {
    const done = yield* this.decideAndCommit(id, (job) => cancel(job, reason), session, known)
    if (cascade) yield* cancelChildren(this, id, session, reason)
    return done
  }

  retry(id: string): Promise<OperationResult> {
    return this.#decide(id, retry)
  }

  promote(id: string): Promise<OperationResult> {
    return this.#decide(id, promote)
  }

  remove(id: string, options?: CascadeOptions): Promise<OperationResult> {
    const { cascade } = splitCascade(options, 'job.remove')
    return this.#run((session) => this.removeSteps(id, session, cascade))
  }

  update(id: string, changes: UpdateOptions): Promise<OperationResult> {
    return this.#run((session) => this.updateSteps(id, changes, session))
  }

  redeliver(id: string): Promise<string> {
    return runSteps(redeliverSteps(id, this, this.session()))
  }

  #decide(id: string, decide: (job: JobRecord) => Decision): Promise<OperationResult> {
    return this.#run((session) => this.decideAndCommit(id, decide, session))
  }

  #run(work: (session: Session) => Steps<OperationResult>): Promise<OperationResult> {
    return runSteps(work(this.session()))
  }

  /** Throws while other jobs wait for this one, because they would wait for ever. */
  *removeSteps(id: string, session: Session, cascade: boolean): Steps<OperationResult> {
    const record = yield* step(session.get(id))
    if (record === undefined || record.kind === SIGNAL) return { done: false, record: undefined }
    yield* refuseChainEnd(session, record)
    if (cascade) yield* removeDependents(this, [id], session)
    const openDependents = (yield* this.#openDependents([record], () => true, session)).get(id)
    if (openDependents !== undefined) throw hasDependents('Job', id, openDependents)
    try {
      return yield* this.decideAndCommit(id, remove, session)
    } catch (error) {
      if (isMillraceError(error, 'JOB_NOT_FOUND')) return { done: false, record: undefined }
      throw error
    }
  }

  /** The jobs that can be removed together: no other job waits for them, and no chain loses only its last job. */
  *removable(records: readonly JobRecord[], session: Session): Steps<readonly JobRecord[]> {
    const ids = new Set(records.map((record) => record.id))
    const dependentsById = yield* this.#openDependents(records, (dependent) => !ids.has(dependent), session)
    const candidates = records.filter((record) => !dependentsById.has(record.id))
    return yield* withoutChainEnds(session, candidates)
  }

  /** The dependents of each unfinished job, filtered by `counts`. */
  *#openDependents(
    records: readonly JobRecord[],
    counts: (dependent: string) => boolean,
    session: Session,
  ): Steps<ReadonlyMap<string, readonly string[]>> {
    const unfinished = records.filter((record) => !isFinished(record.state)).map((record) => record.id)
    const dependentsById = new Map<string, readonly string[]>()
    if (unfinished.length === 0) return dependentsById
    const jobs = yield* readDetails(session, { jobs: unfinished, parts: ['dependents'] })
    for (const { id, dependents } of jobs) {
      const openDependents = dependents.filter((edge) => edge.state === 'open' && counts(edge.dependent))
      if (openDependents.length > 0)
        dependentsById.set(
          id,
          openDependents.map((edge) => edge.dependent),
        )
    }
    return dependentsById
  }

  *updateSteps(id: string, changes: UpdateOptions, session: Session): Steps<OperationResult> {
    const record = yield* this.readSteps(id, session)
    if (changes.data !== undefined && !this.hasSameVersion(record)) throw otherVersion(record)
    const edit = yield* this.parseUpdate(changes, record.name)
    return yield* this.decideAndCommit(id, (job) => update(job, edit), session)
  }

  /** Whether this process's definition has the version that the job was added with. */
  hasSameVersion({ name, version }: JobRecord): boolean {
    const definition = this.#jobs?.[name]
    return definition === undefined || versionOf(definition) === version
  }

  /** Parses `UpdateOptions` into the terms of the lifecycle. */
  *parseUpdate(changes: UpdateOptions, name: string): Steps<Edit> {
    refuseUnknown(changes, ['data', 'priority', 'delay', 'runAt'], 'update')
    const run = parseWhen(changes, 'update') ?? (changes.delay === undefined ? undefined : { in: 0 })
    const { priority } = parseOptions({ priority: changes.priority }, 'update', '', '', undefined)
    const text = changes.data === undefined ? undefined : this.encode(name, changes.data)
    const data = text instanceof Promise ? yield* step(text) : text
    return {
      ...(data !== undefined && { data }),
      ...(changes.priority !== undefined && { priority }),
      ...(run !== undefined && { run }),
    }
  }

  /** Decides an operation by the lifecycle and commits the changes; decides again if another writer moved the job. */
  *decideAndCommit(
    id: string,
    decide: (job: JobRecord) => Decision,
    session: Session,
    known?: JobRecord,
  ): Steps<OperationResult> {
    let record: JobRecord | undefined = known ?? (yield* this.readSteps(id, session))
    for (let races = 0; record !== undefined && races < RACES; races++) {
      const decision = decide(record)
      if (isDenied(decision)) throw denied(record, decision.denied)
      if (decision.length === 0) return { done: false, record }
      const verdict: Verdict = yield* step(session.commit(decision))
      if (verdict.ok) return { done: true, record: yield* step(session.get(id)) }
      refuseDuplicate(verdict, record)
      if (verdict.why === 'broken') record = yield* this.#blocked(record, verdict.id, session)
      else record = verdict.why === 'fence' ? yield* step(session.get(id)) : undefined
    }
    throw jobNotFound(id)
  }

  /** Says which job keeps another from starting over; the other, to be judged anew, where none does any more. */
  *#blocked(record: JobRecord, chain: string, session: Session): Steps<JobRecord> {
    const [last] = (yield* step(session.find({ chain, order: 'newest', limit: 1 }))).items
    if (last !== undefined && (!isFinished(last.state) || last.state === 'completed')) return record
    throw dependencyFailed(record, chain, last)
  }

  /**
   * As `decideAndCommit`, for many jobs; skips those that the lifecycle denies or that are gone. Returns how many
   * changed. Adds to `blocked` the ids of jobs that a failed dependency keeps from restarting.
   */
  *decideAndCommitAll<Seen extends JobHeader>(
    records: readonly Seen[],
    decide: (job: Seen | JobRecord) => Decision,
    session: Session,
    blocked: string[] = [],
  ): Steps<number> {
    let done = 0
    let left: readonly (Seen | JobRecord)[] = records
    for (let races = 0; left.length > 0 && races < RACES; races++) {
      const groups: Group[] = []
      const ids: string[] = []
      for (const record of left) {
        const decision = decide(record)
        if (isDenied(decision) || decision.length === 0) continue
        groups.push(decision)
        ids.push(record.id)
      }
      const verdicts = yield* step(session.commitAll(groups))
      const moved: string[] = []
      for (const [at, verdict] of verdicts.entries()) {
        if (verdict.ok) done++
        else if (verdict.why === 'broken') blocked.push(ids[at]!)
        else if (verdict.why === 'fence') moved.push(ids[at]!)
      }
      left = moved.length === 0 ? [] : (yield* step(session.getAll(moved))).filter((record) => record !== undefined)
    }
    return done
  }

  async logs(id: string, options?: LogOptions): Promise<readonly LogLine[]> {
    const query = { jobs: [id], parts: ['logs'], logs: logPage(options) } as const
    // A page is what one read returns, which is cut by bytes. All lines take as many reads as needed.
    const isPage = options?.after !== undefined || options?.limit !== undefined
    const [found] = isPage
      ? (await this.session().details(query)).jobs
      : await runSteps(readDetails(this.session(), query))
    return found?.logs ?? []
  }

  signal(id: string, name: string, data: unknown): Promise<boolean> {
    return runSteps(this.signalSteps(id, name, data, this.session()))
  }

  /** Sends a signal to a job; returns whether it was accepted. */
  *signalSteps(id: string, name: string, data: unknown, session: Session, known?: JobRecord): Steps<boolean> {
    const text = encodeJson(data, 'signal data', this.maxBytes)
    return yield* sendSignal(session, known ?? (yield* this.readSteps(id, session)), name, text)
  }

  /**
   * Waits for a job's end by events, with a slow poll as fallback. Subscribes before the first read, so that no event
   * is missed in between.
   */
  result(id: string, options: ResultOptions): Promise<unknown> {
    return awaitEnd(this, `job ${id}`, id, options, (end) => {
      const receive = (record: JobRecord | undefined): void => {
        if (record === undefined || record.kind === SIGNAL) end.fail(jobNotFound(id))
        else if (record.kind === 'schedule')
          end.fail(denied(record, 'is a schedule: its runs have results, and it has none'))
        else if (isFinished(record.state)) end.conclude(record.state, record)
      }
      const { sharedReads } = this.connection
      const read = (): void => void sharedReads.read(id).then(receive, end.fail)
      let failure: StoreEvent | undefined
      // An event may arrive late: a job that failed, was cancelled or was removed may have restarted since.
      const concludeUnless = (restarted: (record: JobRecord | undefined) => boolean, finish: () => void): void =>
        void sharedReads.read(id).then((record) => void (restarted(record) || finish()), end.fail)
      const stop = this.subscription.job(id, (event) => {
        if (event === undefined) read()
        else if (event.type === 'completed') end.conclude(event.type, event)
        else if (event.type === 'failed' || event.type === 'cancelled') {
          failure = event
          concludeUnless(
            (record) => record !== undefined && !isFinished(record.state),
            () => end.conclude(event.type, event),
          )
        } else if (event.type === 'removed') {
          const last = failure // so that the failure is reported even if the job was not kept
          concludeUnless(
            (record) => record !== undefined,
            () => (last === undefined ? end.fail(jobRemoved(id)) : end.conclude(last.type, last)),
          )
        } else failure = undefined
      })
      read()
      const stopPolling = this.rereader.add({ jobs: () => [id], receive })
      return () => {
        stop()
        stopPolling()
      }
    })
  }

  /** Calls the listener on close, or at once if already closed. Returns a function that removes it. */
  onClose(listener: () => void): () => void {
    if (this.#closed) listener()
    else this.#closeListeners.add(listener)
    return () => void this.#closeListeners.delete(listener)
  }

  observe(id: string, options: ObserveOptions): AsyncGenerator<Job, void, void> {
    return observe(this, id, options)
  }

  /** Ends all pending waits. */
  close(): void {
    this.#closed = true
    for (const each of [...this.#closeListeners]) each()
  }
}

function accept(
  validation: Awaited<ReturnType<typeof validate>>,
  name: string,
  text: JsonText | undefined,
): JsonText | undefined {
  if (validation.ok) return text
  throw new MillraceError('INVALID_PAYLOAD', `The data for '${name}' was refused: ${validation.issues.join('; ')}`, {
    details: { name, issues: validation.issues },
  })
}

/** Throws if a job cannot restart because another job has taken its dedup key. */
function refuseDuplicate(verdict: Refused, record: JobRecord): void {
  if (verdict.why !== 'duplicate') return
  throw new MillraceError(
    'DEDUP_TAKEN',
    `Job ${record.id} cannot start over: job ${verdict.id} holds its dedup key. Wait for that one or cancel it.`,
    { details: { id: record.id, holder: verdict.id } },
  )
}

/** The error for a job that cannot start over, because of the last job of a chain that it waits for. */
function dependencyFailed({ id, queue }: JobRecord, chain: string, last: JobRecord | undefined): MillraceError {
  const where = last === undefined || last.queue === queue ? '' : ` in queue '${last.queue}'`
  const how =
    last === undefined
      ? 'was removed. Add both anew.'
      : last.id === chain
        ? `is ${last.state}${where}. Retry that one first.`
        : `went on with job ${last.id}${where}, and that is ${last.state}. Retry that one first.`
  return new MillraceError(
    'DEPENDENCY_FAILED',
    `Job ${id} cannot start over: job ${chain}, which it waits for, ${how}`,
    {
      details: { id, dependency: chain, ...(last !== undefined && { job: last.id }), state: last?.state ?? 'removed' },
    },
  )
}

function denied({ id, state }: JobRecord, why: string): MillraceError {
  return new MillraceError('INVALID_STATE', `Job ${id} ${why}.`, { details: { id, state } })
}

function otherVersion({ id, name, version }: JobRecord): MillraceError {
  return new MillraceError(
    'OTHER_VERSION',
    `Job ${id} was added under version ${version} of '${name}', and data made here is of another: its data stays as it is.`,
    { details: { id, version } },
  )
}
