// queue/add.ts: turns a call of `add` into an insert, and the store's verdict into a job handle.
import { createRecord, givenOrder } from '../job/apply.js'
import type { Insert, NewEdge, NewJob } from '../job/change.js'
import { MillraceError } from '../job/errors/errors.js'
import type { Extras, JobRecord, KeepByState, Millis, Webhook } from '../job/job.js'
import type { JsonText } from '../job/values/json.js'
import { create, isDenied, waitingIfDue, replace } from '../job/lifecycle.js'
import { checkName, nearest } from '../job/values/names.js'
import { invalid, isObject } from '../job/values/options.js'
import type { Caller } from '../store/batcher.js'
import { step, runSteps } from '../store/maybe-sync.js'
import type { Steps } from '../store/maybe-sync.js'
import type { JobDetails, Verdict } from '../store/store.js'
import { refuseAborted } from './operations/abort-signal.js'
import { refuseCycle } from './flows/cycles.js'
import type { JobDefinition, JobDefinitions } from './define.js'
import type { JobOperations } from './operations/job-operations.js'
import { Job } from './job.js'
import { refuseWrongAfter } from './flows/chain-types.js'
import { checkExpires, parseOptions } from './add-options.js'
import type { AddOptions, Dependency, JobDefaults, ParsedOptions } from './add-options.js'
import { withOverflow } from './settings/overflow.js'
import { prepareRepeat, updateExistingSchedule } from './settings/schedules.js'
import type { Session } from '../store/session.js'
import { stampOf } from './settings/webhook.js'
import type { Webhooks } from './settings/webhook.js'

/** An add that is checked and ready to send. */
export interface Prepared {
  readonly insert: Insert
  /** What to do with a duplicate; `schedule`: update the existing schedule to match this one. */
  readonly mode: ParsedOptions['mode'] | 'schedule'
}

/** A job's links to other jobs that its options do not contain. */
export interface FamilyLinks {
  /** The parent of this child job. Default: none. */
  readonly parentId?: string
  /** The id, if it was generated before. Default: from the options. */
  readonly id?: string
  /** Further dependencies. Default: none. */
  readonly children?: readonly NewEdge[]
  /** The job names of `children`. */
  readonly names?: readonly string[]
}

/** Parsed options with the webhook to stamp on the job. */
type StampedOptions = ParsedOptions & { readonly webhook: Webhook | undefined }

/**
 * How far ahead of this process's clock the store's clock may be. A job with a later `runAt` is inserted as delayed; if
 * the store's clock is further ahead, upkeep promotes the job at once. For an earlier `runAt`, the store decides job by
 * job, so this is short.
 */
const CLOCK_SKEW: Millis = 1_000

/** An add without options. */
export const NO_OPTIONS: AddOptions = Object.freeze({})

/** Adds jobs to one queue. */
export class Adder {
  readonly #queue: string
  readonly #operations: JobOperations
  readonly #jobs: JobDefinitions | undefined
  readonly #defaults: JobDefaults
  readonly #retention: KeepByState | undefined
  /** Parsed options by job name, for adds without options. */
  readonly #parsed = new Map<string, StampedOptions>()
  /** Extras by job name. */
  readonly #stamps = new Map<string, Extras>()
  readonly #webhooks: Webhooks | undefined
  /** Returns the current trace, for queues with telemetry. */
  trace: (() => string | undefined) | undefined

  constructor(
    queue: string,
    operations: JobOperations,
    jobs: JobDefinitions | undefined,
    defaults: JobDefaults,
    retention: KeepByState | undefined,
    webhooks?: Webhooks,
  ) {
    this.#queue = queue
    this.#operations = operations
    this.#jobs = jobs
    this.#defaults = defaults
    this.#retention = retention
    this.#webhooks = webhooks
  }

  /** Maximum size of the data as JSON, in bytes. */
  get maxBytes(): number {
    return this.#operations.payloads.maxBytes
  }

  /** Checks a job before it is added. Asynchronous only if the schema is. */
  prepare(name: string, data: unknown, options: AddOptions, links?: FamilyLinks): Prepared | Promise<Prepared> {
    if (typeof options === 'object' && options?.repeat !== undefined) {
      const prepare = this.prepare.bind(this)
      return prepareRepeat(prepare, name, data, options, this.#operations.connection.runtime.now())
    }
    const definition = this.definition(name)
    const parsed = this.#options(name, definition, options)
    if (definition?.after !== undefined) {
      refuseWrongAfter(name, definition, [...dependencyNames(options.after), ...(links?.names ?? [])], 'add')
    }
    const version = definition?.version ?? 1
    const text = this.#operations.payloads.encode(name, data)
    if (!(text instanceof Promise)) return this.#insert(name, version, text, parsed, links)
    const prepared = text.then((each) => this.#insert(name, version, each, parsed, links))
    prepared.catch(() => {}) // in a bulk add, another item may throw before this promise is awaited
    return prepared
  }

  /** Sends an add and returns the handle of its job. */
  send(prepared: Prepared, session: Session = this.#operations.session(), signal?: AbortSignal): Promise<Job> {
    if (session.within) return runSteps(this.#sendWithin(prepared, session))
    return new Promise((resolve, reject) => {
      const group = signal === undefined ? [prepared.insert] : unlessAborted(prepared.insert, signal)
      this.#operations.connection.main.submit(group, new PendingAdd(this, prepared, session, resolve, reject))
    })
  }

  /** Sends several adds; within a transaction, in one call. */
  sendAll(prepared: readonly Prepared[], session: Session, signal?: AbortSignal): Promise<Job[]> {
    if (!session.within) return Promise.all(prepared.map((each) => this.send(each, session, signal)))
    return runSteps(this.#sendAllWithin(prepared, session))
  }

  *#sendAllWithin(prepared: readonly Prepared[], session: Session): Steps<Job[]> {
    const verdicts = yield* step(session.commitAll(prepared.map(({ insert }) => [insert])))
    const added: Job[] = []
    for (const [at, each] of prepared.entries()) added.push(yield* this.#resolveHandle(each, verdicts[at]!, session))
    return added
  }

  *#sendWithin(prepared: Prepared, session: Session): Steps<Job> {
    return yield* this.#resolveHandle(prepared, yield* step(session.commit([prepared.insert])), session)
  }

  /** The handle that an add resolves to. */
  handle(prepared: Prepared, verdict: Verdict, session: Session = this.#operations.session()): Job | Promise<Job> {
    return verdict.ok
      ? new Job(this.#operations, verdict.inserted[0]!)
      : runSteps(this.#resolveHandle(prepared, verdict, session))
  }

  *#resolveHandle({ insert, mode }: Prepared, verdict: Verdict, session: Session): Steps<Job> {
    return verdict.ok
      ? new Job(this.#operations, verdict.inserted[0]!)
      : yield* this.#refused(insert, mode, verdict, session)
  }

  /** Throws if the dependencies of a job in this queue would form a cycle. */
  refuseCycle(
    call: string,
    job: JobRecord,
    edges: readonly NewEdge[],
    planned: readonly Prepared[],
    known?: JobDetails,
  ): Promise<void> {
    const inserts = planned.map(({ insert }) => insert)
    return refuseCycle(this.#operations.session(), call, job, edges, inserts, known)
  }

  /** The definition of a job name. Throws if the queue declares its jobs and this name is not among them. */
  definition(name: string): JobDefinition | undefined {
    if (this.#parsed.has(name)) return this.#jobs?.[name]
    checkName(name, 'job name')
    if (this.#jobs === undefined) return undefined
    if (Object.hasOwn(this.#jobs, name)) return this.#jobs[name]
    const near = nearest(name, Object.keys(this.#jobs))
    throw new MillraceError(
      'UNKNOWN_JOB',
      `Queue '${this.#queue}' has no job '${name}'` +
        (near === undefined ? '; declare it with defineJobs.' : `; did you mean '${near}'?`),
    )
  }

  #options(name: string, definition: JobDefinition | undefined, options: AddOptions): StampedOptions {
    const known = options === NO_OPTIONS ? this.#parsed.get(name) : undefined
    if (known !== undefined) return known
    if (!isObject(options)) throw invalid(`queue.add options must be an object, not ${String(options)}.`)
    const {
      input: _i,
      output: _o,
      version: _v,
      upgrade: _u,
      next: _n,
      after: _a,
      phases: _p,
      ...own
    } = definition ?? {}
    const all = { ...this.#defaults, ...own, ...withoutUndefined(options) }
    const where = 'queue.add options'
    const webhook = stampOf(options.webhook, this.#webhooks, where)
    const parsed = { ...parseOptions(all, where, this.#queue, name, this.#retention), webhook }
    if (options === NO_OPTIONS) this.#parsed.set(name, parsed)
    return parsed
  }

  #insert(
    name: string,
    version: number,
    data: JsonText | undefined,
    options: StampedOptions,
    links: FamilyLinks | undefined,
  ): Prepared {
    const { runtime } = this.#operations.connection
    if (options.expires !== undefined) checkExpires(options, runtime.now(), 'queue.add options')
    const created = create({
      id: links?.id ?? options.id ?? runtime.id(),
      kind: 'job',
      queue: this.#queue,
      name,
      version,
      data,
      priority: options.priority,
      lifo: options.lifo,
      attempts: options.attempts,
      backoff: options.backoff,
      timeout: options.timeout,
      run: options.run,
      expires: options.expires,
      parentId: links?.parentId,
      group: options.group,
      dedup: options.dedup,
      keep: options.keep,
      extras: this.#extras(name, options.webhook, options.tags),
      edges: links?.children === undefined ? options.edges : [...options.edges, ...links.children],
    })
    const { run } = options
    const maybeDue = run !== undefined && 'at' in run && run.at - runtime.now() < CLOCK_SKEW
    const insert = maybeDue ? waitingIfDue(created) : created
    return { insert: this.trace === undefined ? insert : withTrace(insert, this.trace()), mode: options.mode }
  }

  /** Jobs of a name that have neither tags nor a webhook of their own share one object, so that the store writes them together. */
  #extras(name: string, webhook: Webhook | undefined, tags: readonly string[] | undefined): Extras | undefined {
    const phases = this.#jobs?.[name]?.phases
    if (phases === undefined && webhook === undefined && tags === undefined) return undefined
    const isDefault = tags === undefined && (webhook === this.#webhooks?.stamp || webhook === undefined)
    const key = `${webhook === undefined ? '-' : '+'}${name}`
    const known = isDefault ? this.#stamps.get(key) : undefined
    if (known !== undefined) return known
    const extras: Extras = Object.freeze({
      ...(phases !== undefined && { phases: Object.freeze([...phases]) }),
      ...(webhook !== undefined && { webhook }),
      ...(tags !== undefined && { tags }),
    })
    if (isDefault) this.#stamps.set(key, extras)
    return extras
  }

  *#refused(
    insert: Insert,
    mode: Prepared['mode'],
    verdict: Verdict & { readonly ok: false },
    session: Session,
  ): Steps<Job> {
    const { why, id, job } = verdict
    if (mode === 'schedule') {
      return new Job(
        this.#operations,
        yield* updateExistingSchedule(session, this.#operations.connection.runtime, insert, verdict),
        {
          duplicate: true,
        },
      )
    }
    switch (why) {
      case 'missing':
        throw new MillraceError(
          'DEPENDENCY_MISSING',
          `after: there is no job ${id}; it was never added, or has been removed.`,
          { details: { id } },
        )
      case 'full':
        return yield* this.#full({ insert, mode }, verdict, session)
      case 'duplicate':
        break
      default:
        throw new MillraceError('STORE_UNAVAILABLE', `The store refused the job: ${why}.`)
    }
    const sameId = id === insert.job.id
    if (sameId && job !== undefined && (job.queue !== insert.job.queue || job.name !== insert.job.name)) {
      throw new MillraceError(
        'DUPLICATE_ID',
        `Job ${id} exists already, as '${job.name}' in queue '${job.queue}'. Ids are unique in a store; choose another.`,
        { details: { id, name: job.name, queue: job.queue } },
      )
    }
    if (!sameId && mode === 'reject') {
      const key = (JSON.parse(insert.job.dedup?.key ?? '[]') as string[]).at(-1) ?? ''
      throw new MillraceError(
        'DUPLICATE_JOB',
        `Job ${id} holds the dedup key '${key}'. Wait for it, or use mode 'keep' or 'replace'.`,
        { details: { id, key } },
      )
    }
    if (job === undefined)
      return new Job(this.#operations, removedRecord(insert.job, id), { duplicate: true, removed: true })
    if (!sameId && mode === 'replace') return yield* this.#replace(insert, job, session)
    return new Job(this.#operations, job, { duplicate: true })
  }

  /** The backlog is full. With `drop-oldest`, the oldest job of the group is dropped for this one. */
  *#full(prepared: Prepared, refused: Verdict, session: Session): Steps<Job> {
    const verdict = yield* withOverflow(session, [prepared.insert], refused)
    if (!verdict.ok && verdict.why === 'full') throw queueFull(prepared.insert, verdict.job)
    return yield* this.#resolveHandle(prepared, verdict, session)
  }

  /** Gives the existing job the new job's data and options; decides again if the existing job was moved meanwhile. */
  *#replace(insert: Insert, existing: JobRecord, session: Session): Steps<Job> {
    const decision = replace(existing, insert.job)
    if (isDenied(decision) || decision.length === 0) return new Job(this.#operations, existing, { duplicate: true })
    const verdict = yield* step(session.commit(decision))
    if (!verdict.ok) return yield* step(this.send({ insert, mode: 'replace' }, session))
    const record = yield* step(session.get(existing.id))
    return new Job(this.#operations, record ?? existing, { duplicate: true, removed: record === undefined })
  }
}

/** The error for a full backlog of a queue or group. */
export function queueFull({ job: { queue, group } }: Insert, oldest: JobRecord | undefined): MillraceError {
  const owner = group !== undefined && oldest !== undefined ? `Group '${group}' of queue` : 'Queue'
  return new MillraceError(
    'QUEUE_FULL',
    `${owner} '${queue}' is at the bound of its backlog; try again later, or raise maxBacklog by queue.limit.`,
    { details: { queue, ...(group !== undefined && { group }) } },
  )
}

/** An insert that is left out of the batch if the signal aborted before the batch left. */
function unlessAborted(insert: Insert, signal: AbortSignal): () => readonly Insert[] {
  return () => {
    refuseAborted(signal)
    return [insert]
  }
}

/** A pending add. A class, because there is one for every job, and closures cost more. */
class PendingAdd implements Caller {
  readonly #adder: Adder
  readonly #prepared: Prepared
  readonly #session: Session
  readonly #resolve: (job: Job | Promise<Job>) => void
  readonly failed: (error: unknown) => void

  constructor(
    adder: Adder,
    prepared: Prepared,
    session: Session,
    resolve: (job: Job | Promise<Job>) => void,
    reject: (error: unknown) => void,
  ) {
    this.#adder = adder
    this.#prepared = prepared
    this.#session = session
    this.#resolve = resolve
    this.failed = reject
  }

  landed(verdict: Verdict): void {
    this.#resolve(this.#adder.handle(this.#prepared, verdict, this.#session))
  }
}

function withTrace(insert: Insert, trace: string | undefined): Insert {
  return trace === undefined ? insert : { ...insert, job: { ...insert.job, extras: { ...insert.job.extras, trace } } }
}

/** The names of the dependencies, where known. */
function dependencyNames(after: AddOptions['after']): readonly (string | undefined)[] {
  const all = after === undefined ? [] : Array.isArray(after) ? (after as readonly Dependency[]) : [after as Dependency]
  return all.map((each) => {
    const job: unknown = typeof each === 'object' && each !== null && 'job' in each ? each.job : each
    return job instanceof Job ? job.name : undefined
  })
}

/** Options without undefined values, so that these do not override defaults. */
function withoutUndefined(options: AddOptions): AddOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
}

/** A record for a removed job that still holds its dedup key. */
function removedRecord(job: NewJob, id: string): JobRecord {
  const added = { ...job, id, data: undefined, run: undefined, chainId: id }
  return { ...createRecord(added, undefined, givenOrder(0), 0, 0), state: 'completed' }
}
