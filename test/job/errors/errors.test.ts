// Errors: stable codes, causes and details, and a page that follows the catalogue.

import { readFile } from 'node:fs/promises'
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { errorCatalogue } from '../../../src/job/errors/catalogue.js'
import { isMillraceError, MillraceError, UnrecoverableError } from '../../../src/job/errors/errors.js'

describe('errors', () => {
  it('carry their code, message, cause and details', () => {
    const cause = new Error('refused')
    const error = new MillraceError('STORE_UNAVAILABLE', 'the store does not answer', { cause, details: { host: 'a' } })
    expect(error).toBeInstanceOf(Error)
    expect(error).toMatchObject({ name: 'MillraceError', code: 'STORE_UNAVAILABLE', cause, details: { host: 'a' } })
  })

  it('have empty details and no cause unless given', () => {
    const error = new MillraceError('QUEUE_FULL', 'full')
    expect(error.details).toEqual({})
    expect('cause' in error).toBe(false)
  })

  it('print under their own name, which is no field of its own', () => {
    const error = new MillraceError('QUEUE_FULL', 'full')
    expect(error.stack).toMatch(/^MillraceError: full/)
    expect(Object.keys(error)).toEqual(['code', 'details'])
    expect(inspect(error)).toContain("code: 'QUEUE_FULL'")
    expect(new UnrecoverableError('no').stack).toMatch(/^UnrecoverableError: no/)
  })

  it('are recognised by shape and code', () => {
    const error = new MillraceError('QUEUE_FULL', 'full')
    expect(isMillraceError(error)).toBe(true)
    expect(isMillraceError(error, 'QUEUE_FULL')).toBe(true)
    expect(isMillraceError(error, 'QUEUE_CLOSED')).toBe(false)
    expect(isMillraceError(Object.assign(new Error('full'), { name: 'MillraceError', code: 'QUEUE_FULL' }))).toBe(true)
  })

  it.each([undefined, null, 'QUEUE_FULL', { code: 'QUEUE_FULL' }, new Error('x'), new UnrecoverableError('x')])(
    'are not confused with %o',
    (other) => {
      expect(isMillraceError(other)).toBe(false)
    },
  )
})

describe('the catalogue', () => {
  it.each(Object.entries(errorCatalogue))('explains in sentences what %s means and what to do', (code, entry) => {
    expect(code).toMatch(/^[A-Z]+(_[A-Z]+)*$/)
    expect(entry.summary).toMatch(/^[A-Z].*\.$/)
    expect(entry.remedy).toMatch(/^[A-Z].*\.$/)
  })

  it('has a section for every code, in order, on the page of errors', async () => {
    const page = await readFile(new URL('../../../docs/errors.md', import.meta.url), 'utf8')
    const sections = [...page.matchAll(/^## (\w+)$/gm)].map(([, code]) => code)
    expect(sections).toEqual(Object.keys(errorCatalogue).toSorted())
  })
})
