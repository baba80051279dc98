// store/sql.ts: how any transaction on an SQL database can be given to Millrace.

/** A row, by the names of its columns. */
export type SqlRow = Readonly<Record<string, unknown>>

/**
 * A transaction of any library, as Millrace can use it. `execute` runs one statement within the transaction and gives its
 * rows, none for a statement that answers no rows. With Prisma:
 *
 * ```ts
 * const tx = { execute: (sql, params) => prisma.$queryRawUnsafe(sql, ...params) }
 * ```
 */
export interface SqlTransaction {
  /** Runs one statement; its parameters are given in the style of the database: `?` in SQLite, `$1` in PostgreSQL. */
  execute(sql: string, params: readonly unknown[]): Promise<readonly SqlRow[]> | readonly SqlRow[]
}
