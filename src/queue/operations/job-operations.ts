// queue/operations/job-operations.ts: what can be done with jobs that exist: read them, move them by the rules, wait for them.
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
import { step, stepwise } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Group, Refused, StoreEvent, Tx, Verdict } from '../../store/store.js'
import { awaitEnd, notFound, removed } from './result.js'
import { cancelChildren, cascadeIn, hasDependents, reasonIn, removeDependents } from './cascade.js'
import type { CancelOptions, CascadeOptions } from './cascade.js'
import { notChainEnds, refuseChainEnd } from '../flows/chain-ends.js'
import { validate, versionOf } from '../define.js'
import type { JobDefinitions } from '../define.js'
import { EventSubscription } from '../events/subscription.js'
import { logsIn } from './logs.js'
import type { LogOptions } from './logs.js'
import type { Done, Job, JobActions, ObserveOptions, ResultOptions, UpdateOptions } from '../job.js'
import { observe } from './observe.js'
import { parseOptions, parseWhen } from '../add-options.js'
import { Rereader } from './reread.js'
import { sending } from '../signals.js'
import { sessionFor } from '../../store/session.js'
import type { Session } from '../../store/session.js'
import { redelivering } from '../settings/webhook.js'

/** How often a wish is judged anew because somebody else moved the job first. */
const RACES = 100

/** What a queue and its workers share in dealing with jobs. */
export class JobOperations implements JobActions {
  readonly connection: Connection
  readonly feed: EventSubscription
  readonly rereading: Rereader
  /** The way of a call to the store, in a transaction if one is given or if the calling code is inside of one. */
  readonly way: (tx?: Tx) => Session
  readonly #jobs: JobDefinitions | undefined
  /** The most bytes that a job's data may take as JSON. */
  readonly maxBytes: number
  /** Called when this desk closes, to let go of those who wait. */
  readonly #closing = new Set<() => void>()
  #closed = false

  constructor(connection: Connection, jobs: JobDefinitions | undefined, maxBytes: number) {
    this.connection = connection
    this.way = sessionFor(connection)
    this.feed = new EventSubscription(connection.store)
    this.rereading = new Rereader(connection)
    this.#jobs = jobs
    this.maxBytes = maxBytes
  }

  /** The payload as text, if it is JSON and the declared schema takes it. Waits only if the schema does. */
  encode(name: string, data: unknown): JsonText | undefined | Promise<JsonText | undefined> {
    const text = encodeJson(data, 'data', this.maxBytes)
    const schema = this.#jobs?.[name]?.input
    if (schema === undefined) return text
    const said = validate(schema, data)
    return said instanceof Promise ? said.then((each) => accept(each, name, text)) : accept(said, name, text)
  }

  /** The job as it stands. */
  read(id: string): Promise<JobRecord> {
    return stepwise(this.reading(id, this.way()))
  }

  /** The job as it stands. */
  *reading(id: string, way: Session): Steps<JobRecord> {
    const record = yield* step(way.get(id))
    if (record === undefined || record.kind === SIGNAL) throw notFound(id)
    return record
  }

  cancel(id: string, options?: CancelOptions): Promise<Done> {
    const { reason, rest } = reasonIn(options, 'job.cancel')
    const { cascade } = cascadeIn(rest, 'job.cancel')
    return this.#within((way) => this.cancelling(id, way, { cascade, reason }))
  }

  /** Its children after it, if it is to cascade. */
  *cancelling(
    id: string,
    way: Session,
    { cascade, reason }: { readonly cascade: boolean; readonly reason: string | undefined },
    known?: JobRecord,
  ): Steps<Done> {
    const done = yield* this.acting(id, (job) => cancel(job, reason), way, known)
    if (cascade) yield* cancelChildren(this, id, way, reason)
    return done
  }

  retry(id: string): Promise<Done> {
    return this.#do(id, retry)
  }

  promote(id: string): Promise<Done> {
    return this.#do(id, promote)
  }

  remove(id: string, options?: CascadeOptions): Promise<Done> {
    const { cascade } = cascadeIn(options, 'job.remove')
    return this.#within((way) => this.removing(id, way, cascade))
  }

  update(id: string, changes: UpdateOptions): Promise<Done> {
    return this.#within((way) => this.updating(id, changes, way))
  }

  redeliver(id: string): Promise<string> {
    return stepwise(redelivering(id, this, this.way()))
  }

  #do(id: string, decide: (job: JobRecord) => Decision): Promise<Done> {
    return this.#within((way) => this.acting(id, decide, way))
  }

  #within(work: (way: Session) => Steps<Done>): Promise<Done> {
    return stepwise(work(this.way()))
  }

  /** Refused while others wait for the job, because they would then wait for nothing. */
  *removing(id: string, way: Session, cascade: boolean): Steps<Done> {
    const record = yield* step(way.get(id))
    if (record === undefined || record.kind === SIGNAL) return { done: false, record: undefined }
    yield* refuseChainEnd(way, record)
    if (cascade) yield* removeDependents(this, [id], way)
    const waiting = (yield* this.#awaited([record], () => true, way)).get(id)
    if (waiting !== undefined) throw hasDependents('Job', id, waiting)
    try {
      return yield* this.acting(id, remove, way)
    } catch (error) {
      if (isMillraceError(error, 'JOB_NOT_FOUND')) return { done: false, record: undefined }
      throw error
    }
  }

  /** Those of some jobs that can be removed together: for which nobody else waits, and no chain loses its end alone. */
  *removable(records: readonly JobRecord[], way: Session): Steps<readonly JobRecord[]> {
    const among = new Set(records.map((record) => record.id))
    const awaited = yield* this.#awaited(records, (dependent) => !among.has(dependent), way)
    const free = records.filter((record) => !awaited.has(record.id))
    return yield* notChainEnds(way, free)
  }

  /** Who waits for each unfinished job, as far as they count. */
  *#awaited(
    records: readonly JobRecord[],
    counts: (dependent: string) => boolean,
    way: Session,
  ): Steps<ReadonlyMap<string, readonly string[]>> {
    const unfinished = records.filter((record) => !isFinished(record.state)).map((record) => record.id)
    const awaited = new Map<string, readonly string[]>()
    if (unfinished.length === 0) return awaited
    const jobs = yield* readDetails(way, { jobs: unfinished, parts: ['dependents'] })
    for (const { id, dependents } of jobs) {
      const waiting = dependents.filter((edge) => edge.state === 'open' && counts(edge.dependent))
      if (waiting.length > 0)
        awaited.set(
          id,
          waiting.map((edge) => edge.dependent),
        )
    }
    return awaited
  }

  *updating(id: string, changes: UpdateOptions, way: Session): Steps<Done> {
    const record = yield* this.reading(id, way)
    if (changes.data !== undefined && !this.writes(record)) throw otherVersion(record)
    const edit = yield* this.editing(changes, record.name)
    return yield* this.acting(id, (job) => update(job, edit), way)
  }

  /** Whether data made here is of the version that the job was added under. */
  writes({ name, version }: JobRecord): boolean {
    const definition = this.#jobs?.[name]
    return definition === undefined || versionOf(definition) === version
  }

  /** `UpdateOptions` in the rules' terms. */
  *editing(changes: UpdateOptions, name: string): Steps<Edit> {
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

  /** Judges a wish by the rules and commits what they say, anew whenever somebody moved the job in between. */
  *acting(id: string, decide: (job: JobRecord) => Decision, way: Session, known?: JobRecord): Steps<Done> {
    let record: JobRecord | undefined = known ?? (yield* this.reading(id, way))
    for (let races = 0; record !== undefined && races < RACES; races++) {
      const decision = decide(record)
      if (isDenied(decision)) throw denied(record, decision.denied)
      if (decision.length === 0) return { done: false, record }
      const verdict: Verdict = yield* step(way.commit(decision))
      if (verdict.ok) return { done: true, record: yield* step(way.get(id)) }
      refuseDuplicate(verdict, record)
      if (verdict.why === 'broken') record = yield* this.#blocked(record, verdict.id, way)
      else record = verdict.why === 'fence' ? yield* step(way.get(id)) : undefined
    }
    throw notFound(id)
  }

  /** Says which job keeps another from starting over; the other, to be judged anew, where none does any more. */
  *#blocked(record: JobRecord, chain: string, way: Session): Steps<JobRecord> {
    const [last] = (yield* step(way.find({ chain, order: 'newest', limit: 1 }))).items
    if (last !== undefined && (!isFinished(last.state) || last.state === 'completed')) return record
    throw dependencyFailed(record, chain, last)
  }

  /**
   * As `acting`, for many: those that the rules deny, or that are gone, are passed over. Answers how many were changed. The ids
   * of those that could not start over because of a dependency are added to `blocked`.
   */
  *actingOnAll<Seen extends JobHeader>(
    records: readonly Seen[],
    decide: (job: Seen | JobRecord) => Decision,
    way: Session,
    blocked: string[] = [],
  ): Steps<number> {
    let done = 0
    let left: readonly (Seen | JobRecord)[] = records
    for (let races = 0; left.length > 0 && races < RACES; races++) {
      const wishes: Group[] = []
      const whose: string[] = []
      for (const record of left) {
        const decision = decide(record)
        if (isDenied(decision) || decision.length === 0) continue
        wishes.push(decision)
        whose.push(record.id)
      }
      const verdicts = yield* step(way.commitAll(wishes))
      const moved: string[] = []
      for (const [at, verdict] of verdicts.entries()) {
        if (verdict.ok) done++
        else if (verdict.why === 'broken') blocked.push(whose[at]!)
        else if (verdict.why === 'fence') moved.push(whose[at]!)
      }
      left = moved.length === 0 ? [] : (yield* step(way.getAll(moved))).filter((record) => record !== undefined)
    }
    return done
  }

  async logs(id: string, options?: LogOptions): Promise<readonly LogLine[]> {
    const query = { jobs: [id], parts: ['logs'], logs: logsIn(options) } as const
    // A page is what one read gives, which is cut by bytes; all of it takes as many reads as it needs.
    const isPage = options?.after !== undefined || options?.limit !== undefined
    const [found] = isPage ? (await this.way().details(query)).jobs : await stepwise(readDetails(this.way(), query))
    return found?.logs ?? []
  }

  signal(id: string, name: string, data: unknown): Promise<boolean> {
    return stepwise(this.signalling(id, name, data, this.way()))
  }

  /** Sends a signal to a job; answers whether it was taken. */
  *signalling(id: string, name: string, data: unknown, way: Session, known?: JobRecord): Steps<boolean> {
    const text = encodeJson(data, 'signal data', this.maxBytes)
    return yield* sending(way, known ?? (yield* this.reading(id, way)), name, text)
  }

  /** Waits for a job's end, by push, with a slow read under it. The ear is open before the first look, so nothing falls between. */
  result(id: string, options: ResultOptions): Promise<unknown> {
    return awaitEnd(this, `job ${id}`, id, options, (end) => {
      const see = (record: JobRecord | undefined): void => {
        if (record === undefined || record.kind === SIGNAL) end.fail(notFound(id))
        else if (record.kind === 'schedule')
          end.fail(denied(record, 'is a schedule: its runs have results, and it has none'))
        else if (isFinished(record.state)) end.conclude(record.state, record)
      }
      const { looks } = this.connection
      const look = (): void => void looks.look(id).then(see, end.fail)
      let bad: StoreEvent | undefined
      // An event may come late: a job that failed, was cancelled or removed may have been started over since.
      const unless = (anew: (record: JobRecord | undefined) => boolean, over: () => void): void =>
        void looks.look(id).then((record) => void (anew(record) || over()), end.fail)
      const stop = this.feed.job(id, (event) => {
        if (event === undefined) look()
        else if (event.type === 'completed') end.conclude(event.type, event)
        else if (event.type === 'failed' || event.type === 'cancelled') {
          bad = event
          unless(
            (record) => record !== undefined && !isFinished(record.state),
            () => end.conclude(event.type, event),
          )
        } else if (event.type === 'removed') {
          const last = bad // what it failed with is told also where the job was not kept
          unless(
            (record) => record !== undefined,
            () => (last === undefined ? end.fail(removed(id)) : end.conclude(last.type, last)),
          )
        } else bad = undefined
      })
      look()
      const forget = this.rereading.add({ jobs: () => [id], see })
      return () => {
        stop()
        forget()
      }
    })
  }

  /** Calls back when this desk closes, or at once if it has. */
  onClose(listener: () => void): () => void {
    if (this.#closed) listener()
    else this.#closing.add(listener)
    return () => void this.#closing.delete(listener)
  }

  observe(id: string, options: ObserveOptions): AsyncGenerator<Job, void, void> {
    return observe(this, id, options)
  }

  /** Lets go of everybody who waits here. */
  close(): void {
    this.#closed = true
    for (const each of [...this.#closing]) each()
  }
}

function accept(
  said: Awaited<ReturnType<typeof validate>>,
  name: string,
  text: JsonText | undefined,
): JsonText | undefined {
  if (said.ok) return text
  throw new MillraceError('INVALID_PAYLOAD', `The data for '${name}' was refused: ${said.issues.join('; ')}`, {
    details: { name, issues: said.issues },
  })
}

/** Refuses to start a job over whose dedup key was taken meanwhile. */
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
