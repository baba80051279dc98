// store/sql.ts: how any transaction on an SQL database can be given to Millrace.

/** A row, by the names of its columns. */
export type SqlRow = Readonly<Record<string, unknown>>

/** A transaction of Prisma, as `prisma.$transaction(async (tx) => …)` gives it. */
export interface PrismaTransaction {
  /** Runs one statement and gives its rows. */
  $queryRawUnsafe(query: string, ...values: never[]): PromiseLike<unknown>
}

/** A transaction of Prisma under the name that all others have; undefined for anything else. */
export function prismaIn(tx: object): SqlTransaction | undefined {
  const { $queryRawUnsafe: query } = tx as { $queryRawUnsafe?: unknown }
  if (typeof query !== 'function') return undefined
  const run = query as (sql: string, ...params: readonly unknown[]) => Promise<readonly SqlRow[]>
  return { execute: (sql, params) => run.call(tx, sql, ...params) }
}

/**
 * A transaction of any library, as Millrace can use it. `execute` runs one statement within the transaction and gives its
 * rows, none for a statement that answers no rows:
 *
 * ```ts
 * const tx = { execute: async (sql, params) => (await client.run(sql, params)).rows }
 * ```
 */
export interface SqlTransaction {
  /** Runs one statement; its parameters are given in the style of the database: `?` in SQLite, `$1` in PostgreSQL. */
  execute(sql: string, params: readonly unknown[]): Promise<readonly SqlRow[]> | readonly SqlRow[]
}
