// The accounts that tests of faults compare: what a store returns, and what was recorded outside of it.
import { readFileSync } from 'node:fs'
import { expect } from 'vitest'
import type { JobRecord } from '../../src/job/job.js'
import { brokenInvariants } from '../../src/conformance/invariants.js'
import type { StoreSnapshot } from '../../src/conformance/invariants.js'
import type { Cell, Store } from '../../src/store/store.js'
import { loadDriver } from '../../src/stores/sqlite/file/driver.js'

/** Everything that a store returns. */
export interface Account extends StoreSnapshot {
  readonly cells: readonly Cell[]
}

/** Reads everything that a store returns. */
export async function accountOf(store: Store): Promise<Account> {
  const jobs: JobRecord[] = []
  let cursor: string | undefined
  do {
    const page = await store.find({ limit: 1000, ...(cursor !== undefined && { cursor }) })
    jobs.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  const { jobs: details, cells } = await store.details({ jobs: jobs.map(({ id }) => id), cellsUnder: '' })
  return { jobs, details, tallies: await store.tally(), cells }
}

/** The account of a store, which must not contradict itself. */
export async function soundAccountOf(store: Store): Promise<Account> {
  const account = await accountOf(store)
  expect(brokenInvariants(account)).toEqual([])
  return account
}

/** SQLite's own check of a file. */
export async function checkFile(path: string): Promise<readonly unknown[]> {
  const Driver = await loadDriver()
  const handle = new Driver(path)
  try {
    return handle
      .prepare('PRAGMA integrity_check')
      .all()
      .map((row) => Object.values(row as object)[0] as unknown)
  } finally {
    handle.close()
  }
}

/** How many jobs are in each state, those without any left out. */
export function states(jobs: readonly JobRecord[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const { state } of jobs) counts[state] = (counts[state] ?? 0) + 1
  return counts
}

/** The lines of a ledger, word by word. */
export function linesOf(path: string): readonly (readonly string[])[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split(' '))
}

/** What occurs more than once. */
export function repeated(values: readonly string[]): readonly string[] {
  const seen = new Set<string>()
  const twice = new Set<string>()
  for (const value of values) {
    if (seen.has(value)) twice.add(value)
    seen.add(value)
  }
  return [...twice]
}
