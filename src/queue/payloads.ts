// queue/payloads.ts: encodes the data of jobs, and checks it by their declarations.
import { MillraceError } from '../job/errors/errors.js'
import type { JobRecord } from '../job/job.js'
import { encodeJson } from '../job/values/json.js'
import type { JsonText } from '../job/values/json.js'
import { validate, versionOf } from './define.js'
import type { JobDefinitions } from './define.js'

/** The data that jobs of a queue may have. */
export class Payloads {
  readonly #jobs: JobDefinitions | undefined
  /** Maximum size of a job's data as JSON, in bytes. */
  readonly maxBytes: number

  constructor(jobs: JobDefinitions | undefined, maxBytes: number) {
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

  /** The names that are declared; undefined if any name may be used. */
  get names(): readonly string[] | undefined {
    return this.#jobs === undefined ? undefined : Object.keys(this.#jobs)
  }

  /** The version of a declared name; undefined if the name is not declared. */
  versionOf(name: string): number | undefined {
    const definition = this.#jobs?.[name]
    return definition === undefined ? undefined : versionOf(definition)
  }

  /** Whether this process's definition has the version that the job was added with. */
  hasSameVersion({ name, version }: JobRecord): boolean {
    const own = this.versionOf(name)
    return own === undefined || own === version
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
