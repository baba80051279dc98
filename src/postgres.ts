// millrace/postgres: the store in PostgreSQL.
export { postgres } from './stores/postgres/store.js'
export type { ClientOf, PgPoolLike, PostgresJsLike, PostgresOptions } from './stores/postgres/options.js'
export { migrationSql } from './stores/postgres/migrate.js'
export type {
  DrizzleTransaction,
  KyselyTransaction,
  PgTransaction,
  PostgresJsSql,
  PostgresTransaction,
} from './stores/postgres/transactions.js'
