// Which tests make up a layer for a bug: the unit tests of its room, conformance on the stores it is in, and the simulator.
import type { Bug } from './bug.js'

/** The layers, from the nearest to the code to the farthest. */
export const layers = ['unit', 'conformance', 'simulator'] as const

/** One of them. */
export type Layer = (typeof layers)[number]

/** The tests of what the stores share. */
const shared = ['bounded-cache', 'clock-back', 'kept-receipts', 'retained-bytes', 'turns'].map(
  (name) => `test/stores/${name}.test.ts`,
)

/** Unit tests by the beginning of a file's path; the first that fits counts. */
const rooms: readonly (readonly [path: string, tests: readonly string[]])[] = [
  ['src/job/', ['test/job']],
  ['src/store/', ['test/store/']],
  [
    'src/stores/sqlite/',
    ['test/stores/sqlite', 'test/queue/settings/limits.test.ts', 'test/queue/flows/flows.test.ts'],
  ],
  [
    'src/stores/postgres/',
    [
      'fast-paths',
      'functions/many-changes',
      'many-processes',
      'busy',
      'claim-cursors',
      'groups',
      'events/events',
      'counters',
      'revoked',
    ].map((name) => `test/stores/postgres/${name}.test.ts`),
  ],
  [
    'src/engine/',
    [
      'test/engine',
      'test/stores/memory',
      ...shared,
      'test/worker/worker.test.ts',
      'test/worker/time.test.ts',
      'test/queue',
    ],
  ],
  [
    'src/stores/',
    ['test/stores/memory', ...shared, 'test/worker/worker.test.ts', 'test/worker/time.test.ts', 'test/queue'],
  ],
  [
    'src/upkeep/',
    [
      'test/worker/time.test.ts',
      'test/upkeep',
      'test/queue/flows',
      'test/queue/operations',
      'test/worker/attempt/retry.test.ts',
    ],
  ],
  ['src/worker/', ['test/worker']],
  ['src/queue/', ['test/queue', 'test/worker/attempt/children.test.ts']],
  ['src/features/', ['test/features']],
  ['src/server/', ['test/server/routes', 'test/server/working', 'test/server/upkeep.test.ts']],
]

/** The tests of a layer that can meet a bug; none where the layer does not run its code. */
export function testsOf({ file, unit = [] }: Bug, layer: Layer): readonly string[] {
  if (layer === 'unit') return [...rooms.find(([path]) => file.startsWith(path))![1], ...unit]
  const inSqlite = file.startsWith('src/stores/sqlite/')
  const inPostgres = file.startsWith('src/stores/postgres/')
  if (layer === 'conformance') {
    if (inSqlite) return ['test/conformance/sqlite']
    if (inPostgres) return ['test/conformance/postgres']
    return /^src\/(stores|job|engine)\//.test(file) ? ['test/conformance/memory'] : []
  }
  if (inPostgres || /^src\/(features|server)\//.test(file)) return []
  return inSqlite ? ['test/testing/sqlite.test.ts'] : ['test/testing/simulator.test.ts', 'test/testing/phases.test.ts']
}
