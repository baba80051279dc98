// store/sql-transaction.ts: how to pass any transaction on an SQL database to Millrace.

/** A row, by column names. */
export type SqlRow = Readonly<Record<string, unknown>>

/** A Prisma transaction, as `prisma.$transaction(async (tx) => …)` passes it. */
export interface PrismaTransaction {
  /** Runs one statement and returns its rows. */
  $queryRawUnsafe(query: string, ...values: never[]): PromiseLike<unknown>
}

/** Adapts a Prisma transaction to `SqlTransaction`; undefined for anything else. */
export function prismaIn(tx: object): SqlTransaction | undefined {
  const { $queryRawUnsafe: query } = tx as { $queryRawUnsafe?: unknown }
  if (typeof query !== 'function') return undefined
  const run = query as (sql: string, ...params: readonly unknown[]) => Promise<readonly SqlRow[]>
  return { execute: (sql, params) => run.call(tx, sql, ...params) }
}

/**
 * A transaction of any library, as Millrace can use it. `execute` runs one statement in the transaction and returns its rows,
 * an empty list for a statement that returns none:
 *
 * ```ts
 * const tx = { execute: async (sql, params) => (await client.run(sql, params)).rows }
 * ```
 */
export interface SqlTransaction {
  /** Runs one statement; parameters are in the style of the database: `?` in SQLite, `$1` in PostgreSQL. */
  execute(sql: string, params: readonly unknown[]): Promise<readonly SqlRow[]> | readonly SqlRow[]
}
