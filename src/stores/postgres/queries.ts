// stores/postgres/queries.ts: which SQL functions answer a query for jobs, and one for details.
import type { JobRecord } from '../../job/job.js'
import type { Details, DetailsQuery, Page, Query, RevokedLease } from '../../store/store.js'
import type { SettingsCache } from '../job-settings.js'
import type { FunctionName } from './calls.js'
import { failuresOf, findText, pageOf } from './find.js'
import type { FailureAnswer, PageAnswer } from './find.js'
import { detailsOf, detailsText } from './read.js'
import type { DetailsAnswer } from './read.js'

/** Calls a function with one text, and parses its answer. */
type Call = <T>(name: FunctionName, text: string) => Promise<T>

/** A page of jobs. */
export async function findPage(query: Query, call: Call, settings: SettingsCache): Promise<Page<JobRecord>> {
  return pageOf(await call<PageAnswer>('find', findText(query)), query, settings)
}

/** What lies beside jobs, cells, revoked leases and failing jobs, as far as a query asks for them. */
export async function readDetails({ revokedFrom, failures, ...query }: DetailsQuery, call: Call): Promise<Details> {
  const found = detailsOf(await call<DetailsAnswer>('details', detailsText(query)))
  if (revokedFrom === undefined && failures === undefined) return found
  return {
    ...found,
    ...(revokedFrom !== undefined && {
      revoked: await call<readonly RevokedLease[]>('revoked', JSON.stringify(revokedFrom)),
    }),
    ...(failures !== undefined && {
      failures: failuresOf(await call<readonly FailureAnswer[]>('failures', JSON.stringify(failures))),
    }),
  }
}
