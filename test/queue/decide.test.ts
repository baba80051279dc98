// The loop of every operation: read, decide, commit, and decide again if another writer was faster.
import { expect, test } from 'vitest'
import type { Change } from '../../src/job/change.js'
import type { JobRecord } from '../../src/job/job.js'
import { cancel } from '../../src/job/lifecycle.js'
import { MAX_RACES, changeJob, decideAndCommit } from '../../src/queue/operations/decide.js'
import { runSteps } from '../../src/store/maybe-sync.js'
import type { Session } from '../../src/store/session.js'
import type { Refused, Verdict } from '../../src/store/store.js'
import { record } from '../job/lifecycle.records.js'

const landed: Verdict = { ok: true, inserted: [] }

function refused(why: Refused['why']): Verdict {
  return { ok: false, why, id: 'job-1', change: 0 }
}

/** A session whose commits are answered in turn, the last of them again and again; each read finds a higher fence. */
function session(...verdicts: readonly Verdict[]): { readonly session: Session; readonly commits: Change[][] } {
  const commits: Change[][] = []
  let fence = 7
  const answer = {
    get: async () => record({ fence: ++fence }),
    find: async () => ({ items: [] }),
    changed: () => {},
    commit: async (group: Change[]) => {
      commits.push(group)
      return verdicts[Math.min(commits.length, verdicts.length) - 1]!
    },
  }
  return { session: answer as unknown as Session, commits }
}

const decide = (job: JobRecord): readonly Change[] => cancel(job) as readonly Change[]

test('a job that was moved is decided on again, in the state that it has then', async () => {
  const { session: raced, commits } = session(refused('fence'), refused('fence'), landed)
  const decided = await runSteps(decideAndCommit(raced, record({ fence: 7 }), decide))
  expect(decided).toMatchObject({ done: true, job: { fence: 9 } })
  expect(commits.map(([first]) => first)).toMatchObject([{ fence: 7 }, { fence: 8 }, { fence: 9 }])
})

test('nothing is committed where nothing is to change', async () => {
  const { session: idle, commits } = session(landed)
  const ended = record({ state: 'completed' })
  expect(await runSteps(decideAndCommit(idle, ended, decide))).toEqual({ done: false, job: ended })
  expect(commits).toEqual([])
})

test('a job that is gone, or that others move all the time, is given up', async () => {
  const gone = session(refused('missing'))
  expect(await runSteps(decideAndCommit(gone.session, record(), decide))).toBe(undefined)
  expect(gone.commits).toHaveLength(1)
  const busy = session(refused('fence'))
  expect(await runSteps(decideAndCommit(busy.session, record(), decide))).toBe(undefined)
  expect(busy.commits).toHaveLength(MAX_RACES)
})

test.each([
  ['missing', 'JOB_NOT_FOUND'],
  ['duplicate', 'DEDUP_TAKEN'],
  ['broken', 'DEPENDENCY_FAILED'],
] as const)('an operation that is refused as %s rejects with %s', async (why, code) => {
  const { session: refusing } = session(refused(why))
  await expect(runSteps(changeJob(refusing, record(), cancel))).rejects.toMatchObject({ code })
})

test('an operation that the lifecycle denies rejects with its reason', async () => {
  const { session: idle } = session(landed)
  const denial = () => ({ denied: 'is asleep' })
  await expect(runSteps(changeJob(idle, record(), denial))).rejects.toMatchObject({
    code: 'INVALID_STATE',
    message: 'Job job-1 is asleep.',
  })
})
