// millrace/sqlite: the store in a SQLite file.
export { sqlite } from './stores/sqlite/store.js'
export type { SqliteOptions } from './stores/sqlite/options.js'
export type { SqliteHandle } from './stores/sqlite/file/driver.js'
export type {
  DrizzleSqliteTransaction,
  KyselyTransaction,
  SqliteTransaction,
  SqliteTx,
  SqliteValue,
} from './stores/sqlite/user-transactions/detect.js'
