// Declaring jobs: what is refused when the program starts, and how messages of schemas become text.
import { defineJobs, job, typed } from 'millrace'
import type { JobDefinition } from 'millrace'
import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { validate } from '../../src/queue/define.js'
import { thrown } from '../thrown.js'

/** The error of defineJobs for an invalid job. */
function wrong(definition: unknown): Error {
  return thrown(() => defineJobs({ mail: definition as JobDefinition }))
}

/** A schema that answers like that. */
function answering(answer: () => never | Promise<never>): Parameters<typeof validate>[0] {
  return { '~standard': { version: 1, vendor: 'test', validate: answer } }
}

describe('job()', () => {
  test('leaves nothing to check of plain types', () => {
    const declared = job({ input: typed<string>(), output: typed<number>(), next: ['other'] })
    expect(declared).toEqual({ next: ['other'] })
    expect('input' in declared || 'output' in declared).toBe(false)
  })

  test('takes schemas of every library that follows the standard, and defaults', () => {
    for (const input of [z.string(), v.string(), type('string')]) {
      expect(job({ input, output: input, version: 2, attempts: 5, timeout: '1m' })).toEqual({
        input,
        output: input,
        version: 2,
        attempts: 5,
        timeout: '1m',
      })
    }
  })

  test('is the same job with empty options as without', () => {
    expect(job()).toEqual({})
    expect(job({})).toEqual({})
  })

  test.each([
    5,
    'string',
    null,
    {},
    () => true,
    { '~standard': {} },
    { '~standard': { version: 2, validate: () => {} } },
  ])('refuses %o as a schema', (wrong) => {
    expect(thrown(() => job({ input: wrong as never }))).toMatchObject({ code: 'INVALID_SCHEMA' })
    const error = thrown(() => job({ output: wrong as never }))
    expect(error).toMatchObject({ code: 'INVALID_SCHEMA' })
    expect(error.message).toContain('output')
  })

  test.each([0, -1, 1.5, Number.NaN, Infinity, '2', null])('refuses version %o', (version) => {
    const error = thrown(() => job({ version: version as number }))
    expect(error).toMatchObject({ code: 'INVALID_OPTION' })
    expect(error.message).toContain('version')
  })

  test('refuses options it does not know, and defaults no job can have', () => {
    expect(thrown(() => job({ attemps: 3 } as object))).toMatchObject({ code: 'UNKNOWN_OPTION' })
    expect(thrown(() => job({ id: 'x' } as object))).toMatchObject({ code: 'UNKNOWN_OPTION' })
    expect(thrown(() => job({ attempts: 0 }))).toMatchObject({ code: 'INVALID_ATTEMPTS' })
    expect(thrown(() => job({ timeout: 'soon' }))).toMatchObject({ code: 'INVALID_DURATION' })
    expect(thrown(() => job({ priority: 0.5 }))).toMatchObject({ code: 'INVALID_PRIORITY' })
    expect(thrown(() => job('x' as never))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => job(null as never))).toMatchObject({ code: 'INVALID_OPTION' })
  })
})

describe('defineJobs', () => {
  test('gives back what it was given', () => {
    const jobs = { a: job(), 'b c': job({ attempts: 1 }) }
    expect(defineJobs(jobs)).toBe(jobs)
  })

  test.each(['', 'a\nb', 'x'.repeat(256), '\ud800'])('refuses %j as a name', (name) => {
    expect(thrown(() => defineJobs({ [name]: job() }))).toMatchObject({ code: 'INVALID_NAME' })
  })

  test('refuses what job() did not make, by its name', () => {
    expect(wrong(undefined)).toMatchObject({ code: 'INVALID_OPTION' })
    expect(wrong(5).message).toContain("'mail'")
    for (const schema of [z.string(), v.string(), type('string')]) {
      expect(wrong(schema)).toMatchObject({ code: 'INVALID_OPTION' })
      expect(wrong(schema).message).toContain('job({ input: schema })')
    }
    expect(wrong({ input: {} })).toMatchObject({ code: 'INVALID_SCHEMA' })
    expect(wrong({ input: {} }).message).toContain("'mail'")
    expect(thrown(() => defineJobs(undefined as never))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(thrown(() => defineJobs([job()] as never))).toMatchObject({ code: 'INVALID_OPTION' })
  })
})

describe('validate', () => {
  test('answers at once when the schema does, and what the schema made of the value', () => {
    expect(validate(z.object({ n: z.number().default(5) }), {})).toEqual({ ok: true, value: { n: 5 } })
    expect(validate(v.pipe(v.string(), v.transform(Number)), '7')).toEqual({ ok: true, value: 7 })
    expect(validate(type({ n: 'number = 5' }), {})).toEqual({ ok: true, value: { n: 5 } })
  })

  test('reports each issue with its path', () => {
    const wrong = { to: [{ name: 1 }] }
    const at = (schema: Parameters<typeof validate>[0]): unknown => {
      const result = validate(schema, wrong)
      return 'issues' in result ? result.issues.map((issue) => issue.slice(0, issue.indexOf(' '))) : result
    }
    expect(at(z.object({ to: z.array(z.object({ name: z.string() })), at: z.string() }))).toEqual(['to.0.name:', 'at:'])
    expect(at(v.object({ to: v.array(v.object({ name: v.string() })), at: v.string() }))).toEqual(['to.0.name:', 'at:'])
    expect(at(type({ to: type({ name: 'string' }).array() }))).toEqual(['to.0.name:'])
  })

  test('has no path for an issue with the whole', () => {
    expect(validate(z.string('text, please'), 5)).toEqual({ ok: false, issues: ['text, please'] })
  })

  test('takes what a schema throws, or rejects with, for a refusal', async () => {
    const refused = { ok: false, issues: ['out of order'] }
    const error = new Error('out of order')
    expect(
      validate(
        answering(() => {
          throw error
        }),
        1,
      ),
    ).toEqual(refused)
    expect(
      await validate(
        answering(() => Promise.reject(error)),
        1,
      ),
    ).toEqual(refused)
  })
})
