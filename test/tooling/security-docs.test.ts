// docs/security.md names a test for each threat: the test exists, under that title.
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

const page = readFileSync('docs/security.md', 'utf8')
const rows = page.split('\n').filter((line) => /^\| .*test\.ts`/.test(line))

it('docs/security.md has threats, each with a test', () => {
  expect(rows.length).toBeGreaterThan(25)
})

it.each(rows.map((row) => [row.split('|')[1]!.trim(), row.split('|')[3]!.trim()]))('%s', (_threat, test) => {
  const [, file, title] = /^`([\w/.-]+)`: (.+)$/.exec(test)!
  expect(readFileSync(`test/server/${file}`, 'utf8').replaceAll("\\'", "'")).toContain(title)
})
