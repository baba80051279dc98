// worker/attempt/payload.ts: upgrades and validates a claimed job's data, and validates its result.
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { MillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { JobRecord } from '../../job/job.js'
import { encodeJson } from '../../job/values/json.js'
import type { JsonText } from '../../job/values/json.js'
import { validate, versionOf } from '../../queue/define.js'
import type { JobDefinition, Validation } from '../../queue/define.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { Job } from '../../queue/job.js'
import type { JobActions } from '../../queue/job.js'

/** Whether the handler gets the job's data unchanged. */
export function isUnchanged(definition: JobDefinition | undefined): boolean {
  return definition === undefined || (definition.input === undefined && definition.upgrade === undefined)
}

/** The job for its handler; or the error if its data was refused, which no retry would fix. */
export async function jobForHandler(
  operations: JobOperations,
  record: JobRecord,
  definition: JobDefinition | undefined,
  running: Pick<JobActions, 'update'>,
): Promise<Job | MillraceError> {
  const job = new Job(operations, record, { running })
  if (definition === undefined || isUnchanged(definition)) return job
  let data: unknown = record.data === undefined ? undefined : job.data
  const upgrade = record.version === versionOf(definition) ? undefined : definition.upgrade?.[record.version]
  if (upgrade !== undefined) {
    try {
      data = await upgrade(data)
    } catch (error) {
      return refused(record, `it could not be upgraded from version ${record.version}: ${describeError(error).message}`)
    }
  }
  if (definition.input !== undefined) {
    const validation = await validate(definition.input, data)
    if (!validation.ok) return refused(record, validation.issues.join('; '))
    data = validation.value
  }
  return new Job(operations, record, { parsed: { data }, running })
}

function refused({ id }: JobRecord, why: string): MillraceError {
  return new MillraceError('INVALID_PAYLOAD', `The data of job ${id} was refused: ${why}`)
}

/** A result that its schema accepts, or the error. */
export type ValidResult = { readonly value: unknown } | { readonly error: MillraceError }

/** Validates what a handler returned against its schema; asynchronous only if the schema is. */
export function validateResult(schema: StandardSchemaV1, value: unknown): ValidResult | Promise<ValidResult> {
  const validation = validate(schema, value)
  return validation instanceof Promise ? validation.then(toResult) : toResult(validation)
}

/** Encodes a result for the store; rejects if its schema refuses it. */
export async function storedResult(
  definition: JobDefinition | undefined,
  value: unknown,
): Promise<JsonText | undefined> {
  let taken = value
  if (definition?.output !== undefined) {
    const valid = await validateResult(definition.output, value)
    if ('error' in valid) throw valid.error
    taken = valid.value
  }
  return taken === undefined ? undefined : encodeJson(taken, 'result')
}

function toResult(validation: Validation): ValidResult {
  if (validation.ok) return { value: validation.value }
  const issues = validation.issues.join('; ')
  return { error: new MillraceError('INVALID_RESULT', `The handler's result was refused: ${issues}`) }
}
