// scripts/error-docs.ts: writes docs/errors.md from the catalogue, or with --check fails if it is out of date.

import { readFile, writeFile } from 'node:fs/promises'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { errorCatalogue } from '../src/job/errors/catalogue.js'
import type { ErrorEntry } from '../src/job/errors/catalogue.js'

const page = fileURLToPath(new URL('../docs/errors.md', import.meta.url))

function render(catalogue: Readonly<Record<string, ErrorEntry>>): string {
  const entries = Object.entries(catalogue).toSorted(([a], [b]) => (a < b ? -1 : 1))
  const sections = entries.map(
    ([code, { summary, remedy }]) => `## ${code}

${summary}

**What to do:** ${remedy}
`,
  )
  return `<!-- Generated from src/job/errors/catalogue.ts by \`npm run docs:errors\`. Do not edit. -->

# Errors

Every error that Millrace throws or reports is a \`MillraceError\` with a stable \`code\`, which is never renamed and never
reused. Branch on the code with \`isMillraceError(error, 'QUEUE_FULL')\`; the message is for people and may change. Facts
for programs are in \`details\`, and the error that caused this one, if any, is in \`cause\`.

${sections.join('\n')}`
}

const expected = render(errorCatalogue)

if (process.argv.includes('--check')) {
  const actual = await readFile(page, 'utf8').catch(() => '')
  if (actual !== expected) {
    console.error(
      'docs/errors.md differs from the catalogue in src/job/errors/catalogue.ts: run `npm run docs:errors`.',
    )
    process.exitCode = 1
  }
} else {
  await writeFile(page, expected)
}
