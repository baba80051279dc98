// server/audit.ts: records who changed what: each change by an admin is a job of a reserved queue, added before the change
// and ended after it, so that a crash between leaves it waiting.
import { create, OWN_ROW } from '../job/change.js'
import { isMillraceError } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'
import { cancel, complete, isDenied } from '../job/lifecycle.js'
import type { Decision } from '../job/lifecycle.js'
import type { JobRecord, KeepByState } from '../job/job.js'
import { RESERVED } from '../job/values/names.js'
import type { Logger } from '../queue/events/events.js'
import type { Connection } from '../store/connection.js'
import { wholeCharacters } from './job-view.js'
import { statusOf } from './problem.js'
import type { Redactor } from './redact.js'

/** The queue of the audit. Workers claim nothing from it. */
export const AUDIT_QUEUE = `${RESERVED}audit`

const KEPT = { deleteAfter: 90 * 24 * 60 * 60 * 1000 }
const KEEP: KeepByState = { completed: KEPT, failed: KEPT, cancelled: KEPT }

/** The most characters of a body that an entry holds. */
const MAX_BODY = 8_192

/** What an entry holds of a change, before it is made. */
export interface AuditedChange {
  /** Who asked: the name of the token, or of the host's user. */
  readonly by: string
  /** The address that it came from, where that is known. */
  readonly from?: string
  /** The id of the request. */
  readonly request: string
  /** The route. */
  readonly route: string
  /** What it is about: the parts of the path. */
  readonly params: Readonly<Record<string, string>>
  /** The query parameters. */
  readonly query?: unknown
  /** The reason, if one was given. */
  readonly reason?: string
  /** The body, with secrets hidden. */
  readonly body?: unknown
  /** The body was too long, and this is how it begins. */
  readonly bodyStart?: string
}

/** What the audit needs to know of a change. */
export interface About {
  /** What the change is called. */
  readonly action: string
  /** The method and path of its route. */
  readonly route: string
  /** The queue that it is about, if it is about one. */
  readonly queue: string | undefined
}

/** What the audit needs of a request. */
interface AuditedCall {
  readonly principal: { readonly name: string }
  readonly params: Readonly<Record<string, string>>
  readonly query: unknown
  readonly body: unknown
  readonly id: string
  readonly address: string | undefined
}

/** What an answer tells the audit. */
interface AuditedAnswer {
  readonly status?: number
  readonly facts?: object
}

/** Records changes. */
export class Audit {
  readonly #connection: Connection
  readonly #logger: Logger
  readonly #redactor: Redactor

  constructor(connection: Connection, logger: Logger, redactor: Redactor) {
    this.#connection = connection
    this.#logger = logger
    this.#redactor = redactor
  }

  /** Makes a change with an entry before and after it. A change that cannot be recorded is not made. */
  async around<Answer extends AuditedAnswer>(
    about: About,
    call: AuditedCall,
    work: () => Promise<Answer>,
  ): Promise<Answer> {
    const row = await this.#add(about, this.#changeOf(about, call))
    let answer: Answer
    try {
      answer = await work()
    } catch (error) {
      await this.#failed(row, error)
      throw error
    }
    const { status = 200, facts } = answer
    const result = JSON.stringify({ status, ...facts })
    await this.#end(row, (each) => complete(each, { kind: 'returned', result, also: [] }))
    return answer
  }

  #changeOf({ route }: About, { principal, address, id, params, query, body }: AuditedCall): AuditedChange {
    const text = body === undefined ? undefined : this.#redactor.json(JSON.stringify(body), 'body')
    const { reason } = { ...(query as object), ...(body as object | undefined) } as { readonly reason?: unknown }
    return {
      by: principal.name,
      ...(address !== undefined && { from: address }),
      request: id,
      route,
      params,
      ...(Object.keys(query ?? {}).length > 0 && { query }),
      ...(typeof reason === 'string' && { reason }),
      ...(text !== undefined && text.length <= MAX_BODY && { body: JSON.parse(text) as unknown }),
      ...(text !== undefined && text.length > MAX_BODY && { bodyStart: wholeCharacters(text.slice(0, MAX_BODY)) }),
    }
  }

  async #add({ action, queue }: About, change: AuditedChange): Promise<JobRecord> {
    const id = `${AUDIT_QUEUE}:${this.#connection.runtime.id()}`
    const data = JSON.stringify(change)
    const row = {
      ...OWN_ROW,
      id,
      kind: 'job',
      queue: AUDIT_QUEUE,
      name: action,
      data,
      group: queue,
      keep: KEEP,
    } as const
    const { by, route, params } = change
    this.#logger.info?.({ by, route, params, audit: id }, `${by}: ${route}`)
    const verdict = await this.#connection.main.commit([create(row)])
    if (verdict.ok) return verdict.inserted[0]!
    throw new Error(`The audit entry was refused: ${verdict.why}.`)
  }

  /** A change that was refused is cancelled; of one that failed on its way it is not known, and the entry stays. */
  async #failed(row: JobRecord, error: unknown): Promise<void> {
    if (!isMillraceError(error) || statusOf(error.code) >= 500) return
    const { message } = describeError(error)
    await this.#end(row, (each) => cancel(each, this.#redactor.text(`${error.code}: ${message}`).slice(0, 500)))
  }

  async #end(row: JobRecord, decide: (row: JobRecord) => Decision): Promise<void> {
    try {
      const decision = decide(row)
      if (!isDenied(decision)) await this.#connection.main.commit(decision)
    } catch (error) {
      this.#logger.error({ error: describeError(error), audit: row.id }, `Audit entry ${row.id} was not ended.`)
    }
  }
}
