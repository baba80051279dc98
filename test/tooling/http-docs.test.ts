// The documents about the routes are those that the table of routes in the code makes.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { expectedDocument, expectedPage } from '../../scripts/http-docs.js'
import { routes } from '../../src/server/routes.js'

test('docs/http.md lists the routes of the code; `npm run docs:http` writes it', () => {
  const written = readFileSync('docs/http.md', 'utf8')
  expect(written).toBe(expectedPage(written))
})

test('docs/openapi.json describes the routes of the code; `npm run docs:http` writes it', () => {
  expect(readFileSync('docs/openapi.json', 'utf8')).toBe(expectedDocument())
})

test('the document has an operation for each route', () => {
  const { paths } = JSON.parse(expectedDocument()) as { readonly paths: Record<string, object> }
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  )
  expect(described.toSorted()).toEqual(routes.map(({ method, path }) => `${method} ${path}`).toSorted())
})
