// How the tests run: on the source, with the package's own name pointing at its doors.
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer } from 'vitest/node'
import type { TestSpecification } from 'vitest/node'

const src = fileURLToPath(new URL('./src', import.meta.url))

/** What takes longest begins first, so that nobody waits for it at the end. */
const long = [
  'planted',
  'sqlite-walks',
  'simulator',
  'kills',
  'family',
  'frozen',
  'examples',
  'testing/sqlite',
  'postgres-walks',
]

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const at = long.findIndex((name) => moduleId.includes(name))
      return at === -1 ? long.length : at
    }
    const usual = await super.sort(files) // oxlint-disable-line unicorn/no-array-sort -- it is the sequencer's
    return usual.toSorted((a, b) => rank(a) - rank(b))
  }
}

export default defineConfig({
  resolve: {
    alias: [
      { find: /^millrace$/, replacement: `${src}/index.ts` },
      {
        find: /^millrace\/(http|memory|postgres|sqlite|server|telemetry|types|webhooks|conformance|testing)$/,
        replacement: `${src}/$1.ts`,
      },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/stores/postgres/server/setup.ts'],
    pool: 'threads',
    sequence: { sequencer: LongestFirst },
    maxWorkers: 2, // most of the time is spent waiting for servers and other processes
    testTimeout: 60_000, // on a busy machine all takes ten times as long, and some tests take five seconds
    hookTimeout: 60_000,
    typecheck: {
      enabled: true,
      include: ['test/types/**/*.test-d.ts'],
      tsconfig: './tsconfig.json',
    },
  },
})
