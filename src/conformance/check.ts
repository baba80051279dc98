// conformance/check.ts: assertions whose messages name the duty that was broken and the actual value.
import assert from 'node:assert/strict'
import { isMillraceError } from '../job/errors/errors.js'
import type { ErrorCode } from '../job/errors/errors.js'
import { dueAt } from '../job/lifecycle.js'
import type { JobRecord, Millis } from '../job/job.js'

/** How long a duty may take in real time before the store counts as hung. */
const TIMEOUT: Millis = 10_000

/** Fails with the duty unless the condition holds. */
export function must(condition: boolean, duty: string): asserts condition {
  if (!condition) assert.fail(duty)
}

/** Fails with the duty and the difference unless both values are deeply and strictly equal. */
export function same<T>(actual: T, expected: T, duty: string): void {
  try {
    assert.deepStrictEqual(actual, expected)
  } catch (error) {
    const difference = error instanceof Error ? error.message : String(error)
    throw new assert.AssertionError({
      message: `${duty}\n${difference}`,
      actual,
      expected,
      operator: 'deepStrictEqual',
    })
  }
}

/** Whether both values are deeply and strictly equal. */
export function equal(actual: unknown, expected: unknown): boolean {
  try {
    assert.deepStrictEqual(actual, expected)
    return true
  } catch {
    return false
  }
}

/** Returns the value; fails with the duty if it is undefined. */
export function present<T>(value: T | undefined, duty: string): T {
  if (value === undefined) assert.fail(duty)
  return value
}

/** Fails unless the record has exactly these values in the given fields. */
export function has(job: JobRecord, fields: Partial<JobRecord>, duty: string): void {
  const seen: Record<string, unknown> = {}
  for (const field of Object.keys(fields) as (keyof JobRecord)[]) seen[field] = job[field]
  same<unknown>(seen, { ...fields }, duty)
}

/** Fails unless the record's `dueAt` follows from its other times. */
export function derived(job: JobRecord): JobRecord {
  same(job.dueAt, dueAt(job), `dueAt of job ${job.id}, which is ${job.state}, is not derived from its other times`)
  return job
}

/** Fails unless the call throws or rejects with this error code. */
export async function refuses(call: () => unknown, code: ErrorCode, duty: string): Promise<void> {
  let result: unknown
  try {
    result = await call()
  } catch (error) {
    must(isMillraceError(error, code), `${duty}: expected ${code}, but it was refused with ${String(error)}`)
    return
  }
  assert.fail(`${duty}: expected ${code}, but the call returned ${JSON.stringify(result)}`)
}

/** Rejects if the work has not ended after `timeout` of real time. */
export async function within<T>(work: Promise<T>, duty: string, timeout: Millis = TIMEOUT): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const guard = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new assert.AssertionError({ message: `${duty}: nothing happened within ${timeout} ms` }))
    }, timeout)
  })
  try {
    return await Promise.race([work, guard])
  } finally {
    clearTimeout(timer)
  }
}
