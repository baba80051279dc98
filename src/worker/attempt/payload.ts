// worker/attempt/payload.ts: a claimed job as its handler sees it, brought up to the version declared here; it and its result are held
// against their schemas.
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { MillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import type { JobRecord } from '../../job/job.js'
import { validate, versionOf } from '../../queue/define.js'
import type { JobDefinition } from '../../queue/define.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { Job } from '../../queue/job.js'
import type { JobActions } from '../../queue/job.js'

/** Whether there is nothing to be done with a job's data before its handler sees it. */
export function isTakenAsIs(definition: JobDefinition | undefined): boolean {
  return definition === undefined || (definition.input === undefined && definition.upgrade === undefined)
}

/** The job for its handler; or why its data was refused, which will not become valid by trying again. */
export async function received(
  desk: JobOperations,
  record: JobRecord,
  definition: JobDefinition | undefined,
  running: Pick<JobActions, 'update'>,
): Promise<Job | MillraceError> {
  const job = new Job(desk, record, { running })
  if (definition === undefined || isTakenAsIs(definition)) return job
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
    const said = await validate(definition.input, data)
    if (!said.ok) return refused(record, said.issues.join('; '))
    data = said.value
  }
  return new Job(desk, record, { parsed: { data }, running })
}

function refused({ id }: JobRecord, why: string): MillraceError {
  return new MillraceError('INVALID_PAYLOAD', `The data of job ${id} was refused: ${why}`)
}

/** Holds what a handler returned against its schema, which may take its time. */
export function judge(
  schema: StandardSchemaV1,
  value: unknown,
  passed: (value: unknown) => void,
  refuse: (error: MillraceError) => void,
): void {
  const said = validate(schema, value)
  const decide = (each: Awaited<typeof said>): void => {
    if (each.ok) passed(each.value)
    else refuse(new MillraceError('INVALID_RESULT', `The handler's result was refused: ${each.issues.join('; ')}`))
  }
  if (said instanceof Promise) void said.then(decide)
  else decide(said)
}
