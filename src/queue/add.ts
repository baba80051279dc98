// queue/add.ts: from a call of `add` to an insert, and from its verdict to a handle.
import type { Insert, NewEdge, NewJob } from '../job/change.js'
import { MillraceError } from '../job/errors.js'
import type { Extras, JobRecord, KeepByState, Millis, Webhook } from '../job/job.js'
import type { JsonText } from '../job/json.js'
import { create, isDenied, perhapsDue, replace } from '../job/lifecycle.js'
import { checkName, nearest } from '../job/names.js'
import type { Caller } from '../store/batcher.js'
import { step, stepwise } from '../store/maybe-sync.js'
import type { Steps } from '../store/maybe-sync.js'
import type { JobDetails, Verdict } from '../store/store.js'
import { refuseAborted } from './operations/abort-signal.js'
import { refuseCycle } from './flows/cycles.js'
import type { JobDefinition, JobDefinitions } from './define.js'
import type { JobOperations } from './operations/job-operations.js'
import { Job } from './job.js'
import { refuseWrongAfter } from './flows/chain-types.js'
import { parseOptions } from './add-options.js'
import type { AddOptions, Dependency, JobDefaults, ParsedOptions } from './add-options.js'
import { withOverflow } from './settings/overflow.js'
import { prepareSchedule, standingSchedule } from './settings/schedules.js'
import type { Session } from '../store/session.js'
import { stampOf } from './settings/webhook.js'
import type { Webhooks } from './settings/webhook.js'

/** An add that was checked and only needs to be sent. */
export interface Prepared {
  readonly insert: Insert
  /** What to do if it stands already; `schedule`: make a standing schedule what this one says. */
  readonly mode: ParsedOptions['mode'] | 'schedule'
}

/** What a job is to others, besides what its options say. */
export interface FamilyLinks {
  /** The job that it is a child of. Default: none. */
  readonly parentId?: string
  /** Its id, where it was minted before. Default: by its options. */
  readonly id?: string
  /** What it waits for besides. Default: nothing. */
  readonly children?: readonly NewEdge[]
  /** The names of those. */
  readonly names?: readonly string[]
}

/** Options, and what goes with them. */
type Stamped = ParsedOptions & { readonly webhook: Webhook | undefined }

/**
 * A date further ahead than this is ahead for the store as well, or its clock is wrong, and the job is promoted at once. What
 * may be due is decided job by job, so that this is short.
 */
const CLOCKS_APART: Millis = 1_000

/** No options given. */
export const NO_OPTIONS: AddOptions = Object.freeze({})

/** Adds jobs to one queue. */
export class Adder {
  readonly #queue: string
  readonly #desk: JobOperations
  readonly #jobs: JobDefinitions | undefined
  readonly #defaults: JobDefaults
  readonly #retention: KeepByState | undefined
  /** Options parsed once per name, for adds that give none. */
  readonly #parsed = new Map<string, Stamped>()
  /** What jobs of a name are stamped with. */
  readonly #stamps = new Map<string, Extras>()
  readonly #webhooks: Webhooks | undefined
  /** The trace that whoever adds is part of, where somebody measures. */
  trace: (() => string | undefined) | undefined

  constructor(
    queue: string,
    desk: JobOperations,
    jobs: JobDefinitions | undefined,
    defaults: JobDefaults,
    retention: KeepByState | undefined,
    webhooks?: Webhooks,
  ) {
    this.#queue = queue
    this.#desk = desk
    this.#jobs = jobs
    this.#defaults = defaults
    this.#retention = retention
    this.#webhooks = webhooks
  }

  /** The most bytes that data may take as JSON. */
  get maxBytes(): number {
    return this.#desk.maxBytes
  }

  /** Checks everything about a job to be added; waits only if a schema does. */
  prepare(name: string, data: unknown, options: AddOptions, kin?: FamilyLinks): Prepared | Promise<Prepared> {
    if (typeof options === 'object' && options?.repeat !== undefined) {
      const prepare = this.prepare.bind(this)
      return prepareSchedule(prepare, name, data, options, this.#desk.connection.runtime.now())
    }
    const definition = this.definition(name)
    const parsed = this.#options(name, definition, options)
    if (definition?.after !== undefined) {
      refuseWrongAfter(name, definition, [...namesIn(options.after), ...(kin?.names ?? [])], 'add')
    }
    const version = definition?.version ?? 1
    const text = this.#desk.encode(name, data)
    if (!(text instanceof Promise)) return this.#insert(name, version, text, parsed, kin)
    const prepared = text.then((each) => this.#insert(name, version, each, parsed, kin))
    prepared.catch(() => {}) // one of many may be refused before anybody waits for the others
    return prepared
  }

  /** Sends an add, and makes a handle of what it comes to. */
  send(prepared: Prepared, way: Session = this.#desk.way(), signal?: AbortSignal): Promise<Job> {
    if (way.within) return stepwise(this.#sending(prepared, way))
    return new Promise((resolve, reject) => {
      const group = signal === undefined ? [prepared.insert] : unlessAborted(prepared.insert, signal)
      this.#desk.connection.main.submit(group, new Adding(this, prepared, way, resolve, reject))
    })
  }

  /** Sends several; within a transaction all at once. */
  sendAll(prepared: readonly Prepared[], way: Session, signal?: AbortSignal): Promise<Job[]> {
    if (!way.within) return Promise.all(prepared.map((each) => this.send(each, way, signal)))
    return stepwise(this.#sendingAll(prepared, way))
  }

  *#sendingAll(prepared: readonly Prepared[], way: Session): Steps<Job[]> {
    const verdicts = yield* step(way.commitAll(prepared.map(({ insert }) => [insert])))
    const added: Job[] = []
    for (const [at, each] of prepared.entries()) added.push(yield* this.#handling(each, verdicts[at]!, way))
    return added
  }

  *#sending(prepared: Prepared, way: Session): Steps<Job> {
    return yield* this.#handling(prepared, yield* step(way.commit([prepared.insert])), way)
  }

  /** The handle that an add resolves to. */
  handle(prepared: Prepared, verdict: Verdict, way: Session = this.#desk.way()): Job | Promise<Job> {
    return verdict.ok ? new Job(this.#desk, verdict.inserted[0]!) : stepwise(this.#handling(prepared, verdict, way))
  }

  *#handling({ insert, mode }: Prepared, verdict: Verdict, way: Session): Steps<Job> {
    return verdict.ok ? new Job(this.#desk, verdict.inserted[0]!) : yield* this.#refused(insert, mode, verdict, way)
  }

  /** Refuses that a job of this queue waits for what waits for it. */
  refuseCycle(
    call: string,
    job: JobRecord,
    edges: readonly NewEdge[],
    planned: readonly Prepared[],
    known?: JobDetails,
  ): Promise<void> {
    const inserts = planned.map(({ insert }) => insert)
    return refuseCycle(this.#desk.way(), call, job, edges, inserts, known)
  }

  /** How a name was declared; one that should have been and was not is refused. */
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

  #options(name: string, definition: JobDefinition | undefined, options: AddOptions): Stamped {
    const known = options === NO_OPTIONS ? this.#parsed.get(name) : undefined
    if (known !== undefined) return known
    if (typeof options !== 'object' || options === null || Array.isArray(options)) {
      throw new MillraceError('INVALID_OPTION', `queue.add options must be an object, not ${String(options)}.`)
    }
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
    const all = { ...this.#defaults, ...own, ...defined(options) }
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
    options: Stamped,
    kin: FamilyLinks | undefined,
  ): Prepared {
    const made = create({
      id: kin?.id ?? options.id ?? this.#desk.connection.runtime.id(),
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
      parentId: kin?.parentId,
      group: options.group,
      dedup: options.dedup,
      keep: options.keep,
      extras: this.#extras(name, options.webhook),
      edges: kin?.children === undefined ? options.edges : [...options.edges, ...kin.children],
    })
    const { run } = options
    const soon = run !== undefined && 'at' in run && run.at - this.#desk.connection.runtime.now() < CLOCKS_APART
    const insert = soon ? perhapsDue(made) : made
    return { insert: this.trace === undefined ? insert : traced(insert, this.trace()), mode: options.mode }
  }

  /** One object for all jobs of a name that give no webhook of their own: those that are alike are written together. */
  #extras(name: string, webhook: Webhook | undefined): Extras | undefined {
    const phases = this.#jobs?.[name]?.phases
    if (phases === undefined && webhook === undefined) return undefined
    const usual = webhook === this.#webhooks?.stamp || webhook === undefined
    const key = `${webhook === undefined ? '-' : '+'}${name}`
    const known = usual ? this.#stamps.get(key) : undefined
    if (known !== undefined) return known
    const extras: Extras = Object.freeze({
      ...(phases !== undefined && { phases: Object.freeze([...phases]) }),
      ...(webhook !== undefined && { webhook }),
    })
    if (usual) this.#stamps.set(key, extras)
    return extras
  }

  *#refused(
    insert: Insert,
    mode: Prepared['mode'],
    verdict: Verdict & { readonly ok: false },
    way: Session,
  ): Steps<Job> {
    const { why, id, job } = verdict
    if (mode === 'schedule') {
      return new Job(this.#desk, yield* standingSchedule(this.#desk, insert, verdict, way), { duplicate: true })
    }
    switch (why) {
      case 'missing':
        throw new MillraceError(
          'DEPENDENCY_MISSING',
          `after: there is no job ${id}; it was never added, or has been removed.`,
          { details: { id } },
        )
      case 'full':
        return yield* this.#full({ insert, mode }, verdict, way)
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
    if (job === undefined) return new Job(this.#desk, asRemoved(insert.job, id), { duplicate: true, removed: true })
    if (!sameId && mode === 'replace') return yield* this.#replace(insert, job, way)
    return new Job(this.#desk, job, { duplicate: true })
  }

  /** There was no room. Where it is the group's, its oldest job may have to make some. */
  *#full(prepared: Prepared, refused: Verdict, way: Session): Steps<Job> {
    const verdict = yield* withOverflow(way, [prepared.insert], refused)
    if (!verdict.ok && verdict.why === 'full') throw noRoom(prepared.insert, verdict.job)
    return yield* this.#handling(prepared, verdict, way)
  }

  /** Gives the standing job what the new one said; judged anew if it was moved in between. */
  *#replace(insert: Insert, standing: JobRecord, way: Session): Steps<Job> {
    const decision = replace(standing, insert.job)
    if (isDenied(decision) || decision.length === 0) return new Job(this.#desk, standing, { duplicate: true })
    const verdict = yield* step(way.commit(decision))
    if (!verdict.ok) return yield* step(this.send({ insert, mode: 'replace' }, way))
    const record = yield* step(way.get(standing.id))
    return new Job(this.#desk, record ?? standing, { duplicate: true, removed: record === undefined })
  }
}

/** The error for a job that its queue, or its group, has no room for. */
export function noRoom({ job: { queue, group } }: Insert, oldest: JobRecord | undefined): MillraceError {
  const whose = group !== undefined && oldest !== undefined ? `Group '${group}' of queue` : 'Queue'
  return new MillraceError(
    'QUEUE_FULL',
    `${whose} '${queue}' is at the bound of its backlog; try again later, or raise maxBacklog by queue.limit.`,
    { details: { queue, ...(group !== undefined && { group }) } },
  )
}

/** An insert that is left out of its batch if nobody waits for it any more when that leaves. */
function unlessAborted(insert: Insert, signal: AbortSignal): () => readonly Insert[] {
  return () => {
    refuseAborted(signal)
    return [insert]
  }
}

/** An add on its way. A class, since there is one for every job, and closures cost more. */
class Adding implements Caller {
  readonly #adder: Adder
  readonly #prepared: Prepared
  readonly #way: Session
  readonly #resolve: (job: Job | Promise<Job>) => void
  readonly failed: (error: unknown) => void

  constructor(
    adder: Adder,
    prepared: Prepared,
    way: Session,
    resolve: (job: Job | Promise<Job>) => void,
    reject: (error: unknown) => void,
  ) {
    this.#adder = adder
    this.#prepared = prepared
    this.#way = way
    this.#resolve = resolve
    this.failed = reject
  }

  landed(verdict: Verdict): void {
    this.#resolve(this.#adder.handle(this.#prepared, verdict, this.#way))
  }
}

function traced(insert: Insert, trace: string | undefined): Insert {
  return trace === undefined ? insert : { ...insert, job: { ...insert.job, extras: { ...insert.job.extras, trace } } }
}

/** The names of jobs given as dependencies, as far as they are known. */
function namesIn(after: AddOptions['after']): readonly (string | undefined)[] {
  const all = after === undefined ? [] : Array.isArray(after) ? (after as readonly Dependency[]) : [after as Dependency]
  return all.map((each) => {
    const job: unknown = typeof each === 'object' && each !== null && 'job' in each ? each.job : each
    return job instanceof Job ? job.name : undefined
  })
}

/** Options without those set to undefined, so that they do not hide defaults. */
function defined(options: AddOptions): AddOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
}

/** What is known of a job that still holds its dedup key but has been removed. */
function asRemoved(job: NewJob, id: string): JobRecord {
  const { lifo: _lifo, run: _run, ...rest } = job
  return {
    ...rest,
    id,
    data: undefined,
    state: 'completed',
    ord: 0,
    fence: 0,
    attempt: 0,
    worker: undefined,
    runAt: undefined,
    leaseUntil: undefined,
    brokenAt: undefined,
    staleAt: undefined,
    stale: false,
    deleteAt: undefined,
    dueAt: undefined,
    chainId: id,
    pending: 0,
    stalls: 0,
    ahead: false,
    memo: undefined,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: [],
    createdAt: 0,
    startedAt: undefined,
    finishedAt: undefined,
  }
}
