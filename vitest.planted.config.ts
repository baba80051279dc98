// The configuration of the suite with one bug planted in the source: the one that MILLRACE_PLANT names by its title.
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { mergeConfig } from 'vitest/config'
import { plant } from './test/planted/bug.js'
import { bugs } from './test/planted/bugs.js'
import suite from './vitest.config.js'

const root = fileURLToPath(new URL('.', import.meta.url))
const bug = bugs.find(({ title }) => title === process.env.MILLRACE_PLANT)
if (bug === undefined) throw new Error(`There is no bug '${process.env.MILLRACE_PLANT}' in test/planted/bugs.ts.`)

export default mergeConfig(suite, {
  cacheDir: 'node_modules/.planted',
  plugins: [
    {
      name: 'planted',
      enforce: 'pre' as const,
      transform(code: string, id: string) {
        return relative(root, id.split('?')[0]!) === bug.file ? { code: plant(bug, code), map: null } : undefined
      },
    },
  ],
  test: { typecheck: { enabled: false }, bail: 1, retry: 0 },
})
