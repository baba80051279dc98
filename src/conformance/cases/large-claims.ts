// conformance/cases/large-claims.ts: cases on the bytes of claims: no more than one receipt may have, whatever fills the jobs.
import type { Change } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import { bytesOfRecord, READ_BYTES } from '../../store/read-pages.js'
import { BOOM, handBack, insert, note, failAndRetry } from '../changes.js'
import type { JobOptions } from '../changes.js'
import { must, present, same } from '../check.js'
import { ask, first, ids } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import type { Harness } from '../harness.js'
import { withListener } from '../listener.js'

/** The jobs of a case, and the text in each of them: together more than one receipt may have. */
const COUNT = 12
const LARGE = 'x'.repeat(900_000)

/** What can fill a job apart from its data: changes that its lease holder makes before it gives the job back. */
const fillings: Readonly<Record<string, (job: JobRecord) => readonly Change[]>> = {
  memo: (job) => [...note(job, { memo: `"${LARGE}"` }), ...handBack(job)],
  progress: (job) => [...note(job, { progress: LARGE }), ...handBack(job)],
  errors: (job) => failAndRetry(job, 0, { ...BOOM, message: LARGE }),
}

/** Which lanes the large jobs are in, and what else is in the batch of the claim: stores may have another path for each. */
const claimPaths: Readonly<
  Record<string, { readonly beside?: true; readonly options: (n: number) => readonly [string, JobOptions] }>
> = {
  'one lane': { options: () => ['work', {}] },
  'one lane, beside a group': { beside: true, options: () => ['work', {}] },
  'several lanes': { options: (n) => [`work-${n % 3}`, {}] },
  'several lanes, beside a group': { beside: true, options: (n) => [`work-${n % 3}`, {}] },
  'a lane of groups': { options: (n) => ['work', { group: `g-${n % 3}` }] },
  'a lane of groups, beside a group': { beside: true, options: (n) => ['work', { group: `g-${n % 3}` }] },
}

/** Claims all large jobs, each time as many as are left; returns their ids. */
async function claimAll(d: Driver, duty: string, options: { readonly ahead?: true; readonly beside?: true } = {}) {
  const given: string[] = []
  for (let claims = 1; given.length < COUNT; claims++) {
    must(claims <= COUNT, `${duty}: a claim returns at least one job`)
    const left = COUNT - given.length
    const { asks, again, now } = await d.commit({
      groups: options.beside ? [[insert(d.id(), 'small', { queue: 'elsewhere' })]] : [],
      asks: [options.ahead ? ask(1, { ahead: left - 1 }) : ask(left)],
    })
    const jobs = present(asks[0], 'a receipt has a list of jobs for each claim')
    const bytes = jobs.slice(0, -1).reduce((sum, job) => sum + bytesOfRecord(job), 0)
    must(bytes < READ_BYTES, `${duty}: the job that reaches the limit of bytes is the last`)
    given.push(...ids(jobs))
    const isCut = given.length < COUNT
    must(!isCut || (again !== undefined && again <= now), `${duty}: \`again\` of a claim that was cut is now`)
    must(isCut || again === undefined || again > now, `${duty}: \`again\` of a claim that was not cut is later`)
  }
  return given
}

async function addLarge(d: Driver, options: (n: number) => readonly [string, JobOptions] = () => ['work', {}]) {
  const added: string[] = []
  for (let n = 0; n < COUNT; n++) {
    const [name, rest] = options(n)
    added.push((await d.add(name, { ...rest, data: LARGE })).id)
  }
  return added
}

/** A claim is cut by the bytes of its jobs. */
export const largeClaims = area('large claims', {
  ...Object.fromEntries(
    Object.entries(claimPaths).map(([path, { beside, options }]) => [
      `a claim returns no more data than a receipt may have: ${path}`,
      async (h: Harness): Promise<void> => {
        const d = first(h)
        const added = await addLarge(d, options)
        const given = await claimAll(d, path, beside && { beside })
        same(given.toSorted(), added.toSorted(), 'what a claim did not return stays waiting for another')
      },
    ]),
  ),

  ...Object.fromEntries(
    Object.entries(fillings).map(([what, fill]) => [
      `a claim returns no more ${what} than a receipt may have`,
      async (h: Harness): Promise<void> => {
        const d = first(h)
        await d.addMany(COUNT, 'work')
        for (const job of await d.claim(COUNT)) await d.land(fill(job))
        await d.upkeep()
        await claimAll(d, what)
      },
    ]),
  ),

  'a claim of jobs to prefetch is cut like any other': async (h) => {
    const d = first(h)
    const added = await addLarge(d)
    same(await claimAll(d, 'ahead', { ahead: true }), added, 'what a claim did not return keeps its place')
  },

  'jobs that a claim was cut before count against no limit': async (h) => {
    const d = first(h)
    await d.limit({ rate: { max: COUNT, per: 3_600_000 }, concurrency: COUNT })
    await addLarge(d)
    await claimAll(d, 'a rate')
    await d.add('work')
    same((await d.claim(1)).length, 0, 'a rate that is used up returns nothing')
  },

  'a claim that was cut does not drain its queue': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      for (const beside of [undefined, true] as const) {
        const before = listener.all.length
        await addLarge(d)
        await claimAll(d, 'drained', beside && { beside })
        await listener.received(d)
        const types = listener.all
          .slice(before)
          .filter(({ queue }) => queue === 'mill')
          .map(({ type }) => type)
        same(types.filter((type) => type === 'drained').length, 1, 'a queue is drained once')
        same(types.at(-1), 'drained', 'and with its last job')
      }
    })
  },

  'a claim that was cut returns the same receipt when it is sent again': async (h) => {
    const d = first(h)
    await addLarge(d)
    const receipt = await d.commit({ asks: [ask(COUNT)] })
    const replayed = await d.replay()
    same(replayed.asks.map(ids), receipt.asks.map(ids), 'a replay returns the jobs that were claimed')
    same(replayed.again, receipt.again, 'with the same time to claim again')
  },
})
