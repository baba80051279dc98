// server/store-protocol/judge.ts: decides what of a batch its sender may do, before it meets the batches of others.
//
// What a batch asks for by itself and its sender may not do is refused: nothing of the batch is sent. What depends on the
// jobs in the store is not refused here, because a batch may be sent again after it was applied, when those jobs are others
// already: a change is added to such a group that no store applies. So a new batch is refused as a stale one is, and the
// receipt of one that was applied before is answered again.
import { MillraceError } from '../../job/errors/errors.js'
import { createRecord, givenOrder } from '../../job/apply.js'
import { OWN_ROW, create } from '../../job/change.js'
import type { Note } from '../../job/change.js'
import { isReserved } from '../../job/values/names.js'
import type { Ask, Batch, Group, Receipt, Renewal, Verdict } from '../../store/batch.js'
import type { ServerParts } from '../parts.js'
import { examine } from './grammar.js'
import type { GrammarParts } from './grammar.js'
import { Facts } from './facts.js'
import type { Demand } from './facts.js'
import type { HeldJob, HeldJobs } from './held-jobs.js'
import type { Scope } from './scope.js'

/** A batch as the store gets it, and its receipt as the sender does. */
export interface Judged {
  readonly batch: Batch
  answer(receipt: Receipt): Receipt
}

/** The most places in a batch that one refusal names. */
const NAMED = 20

/** The queue and the name of a job that the caller may not know of. */
const HIDDEN = 'millrace:hidden'

/** No job has this id. */
const NOBODY = 'millrace:nobody'
const NEVER: Note = { kind: 'note', id: NOBODY, fence: -1, held: false }

/** Judges a batch. Throws FORBIDDEN, with the places of what its sender may not do in `details.parts`. */
export async function judge(
  scope: Scope,
  sent: Batch,
  server: Pick<ServerParts, 'store' | 'queues'>,
  held: HeldJobs,
): Promise<Judged> {
  const writer = `${scope.prefix}${sent.writer}`
  const learn = (receipt: Receipt): void => {
    for (const jobs of receipt.asks) for (const job of jobs) held.learn(job)
  }
  if (scope.everything && scope.admin) {
    return {
      batch: { ...sent, writer },
      answer(receipt) {
        learn(receipt)
        return { ...receipt, writer: sent.writer }
      },
    }
  }
  const demands = examineAll(scope, sent, server, held)
  const renewals = sent.renewals.map((renewal) => renewalDemand(scope, renewal, held))
  const all = [...demands.flat(), ...renewals.filter((demand) => demand !== undefined)]
  const facts = await Facts.read(server.store, held, all)
  const failed = demands.map((each) => each.find((demand) => !demand.test(facts)))
  const groups = sent.groups.map((group, at): Group => (failed[at] === undefined ? group : [...group, NEVER]))
  const batch: Batch = {
    ...sent,
    writer,
    groups,
    renewals: sent.renewals.map((renewal, at) =>
      renewals[at]?.test(facts) === false ? { ...renewal, fence: NEVER.fence } : renewal,
    ),
  }
  return {
    batch,
    answer(receipt) {
      learn(receipt)
      return {
        ...receipt,
        writer: sent.writer,
        groups: receipt.groups.map((verdict, at) =>
          shown(scope, restored(verdict, sent.groups[at] ?? [], failed[at]), sent.groups[at]),
        ),
        renewals: receipt.renewals.map((verdict) => shown(scope, verdict)),
      }
    },
  }
}

/** What each group demands. */
function examineAll(
  scope: Scope,
  { groups, asks, renewals }: Batch,
  { queues }: Pick<ServerParts, 'queues'>,
  held: HeldJobs,
): readonly (readonly Demand[])[] {
  const mayCall: GrammarParts['mayCall'] = (queue, url) => {
    const own = queues.serves(queue) ? queues.get(queue).webhooks?.stamp.url : undefined
    return own !== undefined && new URL(own).origin === new URL(url).origin
  }
  const parts: GrammarParts = { scope, held, mayCall }
  const refused: { readonly part: string; readonly why: string }[] = []
  const demands = groups.map((group, at) => {
    const examined = examine(group, parts)
    if ('demands' in examined) return examined.demands
    refused.push({ part: `groups[${at}]`, why: examined.refused })
    return []
  })
  for (const [at, ask] of asks.entries()) {
    const why = whyNoClaim(scope, ask)
    if (why !== undefined) refused.push({ part: `asks[${at}]`, why })
  }
  if (renewals.length > 0 && !scope.works) refused.push({ part: 'renewals', why: 'renew leases' })
  const [first] = refused
  if (first === undefined) return demands
  throw new MillraceError(
    'FORBIDDEN',
    `'${scope.principal.name}' may not ${first.why}. Nothing of the batch was applied.`,
    {
      details: { at: `body.${first.part}`, parts: refused.slice(0, NAMED).map(({ part }) => part) },
    },
  )
}

function whyNoClaim(scope: Scope, { worker, queues }: Ask): string | undefined {
  if (!scope.works) return 'claim jobs'
  if (!worker.startsWith(scope.prefix)) return `claim jobs for a worker whose id does not begin with '${scope.prefix}'`
  const outside = queues.find((queue) => isReserved(queue) || !scope.holds(queue))
  return outside === undefined ? undefined : `claim jobs of the queue '${outside}'`
}

/** A lease is renewed by whoever holds it. */
function renewalDemand(scope: Scope, { id, fence }: Renewal, held: HeldJobs): Demand | undefined {
  const fits = ({ worker, queue }: HeldJob): boolean =>
    scope.holds(queue) && !isReserved(queue) && (scope.admin || worker?.startsWith(scope.prefix) === true)
  const remembered = held.find(id, fence)
  if (remembered !== undefined && fits(remembered)) return undefined
  const test = (facts: Facts): boolean => {
    const job = facts.fenced(id, fence)
    return job !== undefined && fits(job)
  }
  return { change: 0, why: 'fence', id, jobs: [id], test }
}

/** The refusal of a group to which a change was added that no store applies, as one of the change that caused that. */
function restored(verdict: Verdict, group: Group, failed: Demand | undefined): Verdict {
  if (verdict.ok || verdict.id !== NOBODY) return verdict
  if (failed !== undefined) return { ok: false, change: failed.change, id: failed.id, why: failed.why }
  // Sent again, and by now nothing speaks against it: it stays refused, as it was.
  const [first] = group
  const id = first === undefined ? '' : 'id' in first ? first.id : first.kind === 'insert' ? first.job.id : ''
  return { ok: false, change: 0, id, why: 'fence' }
}

/** A verdict without jobs that the caller may not know of. That an id is taken cannot be hidden, but by what can. */
function shown(scope: Scope, verdict: Verdict, group: Group = []): Verdict {
  if (verdict.ok || verdict.job === undefined || scope.holds(verdict.job.queue)) return verdict
  const { job: _job, ...rest } = verdict
  const change = group[verdict.change]
  if (rest.why !== 'duplicate' || change?.kind !== 'insert' || change.job.id !== rest.id) return rest
  const { job } = create({ ...OWN_ROW, id: rest.id, kind: 'job', queue: HIDDEN, name: HIDDEN, data: undefined })
  return { ...rest, job: createRecord(job, undefined, givenOrder(0), 0, 0) }
}
