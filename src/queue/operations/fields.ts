// queue/operations/fields.ts: picks the fields of a job that a caller asks for, by name.
import { invalid, mustBe, oneOf } from '../../job/values/options.js'
import { jobFields } from '../job.js'
import type { Job, JobField } from '../job.js'

/** Checks a list of fields of a job. `where` begins the messages. */
export function checkFields(fields: unknown, where: string): readonly JobField[] {
  if (!Array.isArray(fields)) throw mustBe(`${where}: fields`, "a list, as in ['state', 'progress']", fields)
  if (fields.length === 0) throw invalid(`${where}: fields must name one field at least, or be left out for all.`)
  return fields.map((field: unknown) => oneOf(field as string, jobFields, `${where}: fields`))
}

/** These fields of a job; absent where they are undefined. */
export function pickFields(job: Job, fields: Iterable<JobField>): Record<string, unknown> {
  const picked: Record<string, unknown> = {}
  for (const field of fields) if (job[field] !== undefined) picked[field] = job[field]
  return picked
}
