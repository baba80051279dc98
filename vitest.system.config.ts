// How the tests of the system tier run: those that need more than a plain user may do, or, where better-sqlite3 was
// installed for them, those of its handles.
import { defineConfig } from 'vitest/config'
import usual from './vitest.config.js'

export default defineConfig({
  ...usual,
  test: {
    ...usual.test,
    include: [process.env['MILLRACE_BETTER_SQLITE3'] ? 'test/system/**/*.handle.ts' : 'test/system/**/*.system.ts'],
    typecheck: { enabled: false },
  },
})
