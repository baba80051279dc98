// testing/check/trace.ts: describes an applied batch in one line of the trace.
import type { Change, NewEdge } from '../../job/change.js'
import type { Batch, Receipt, Verdict } from '../../store/store.js'

/** Describes a batch and its receipt in one line. */
export function describeLanding(batch: Batch, receipt: Receipt, replay: boolean): string {
  const name = `${batch.writer}#${batch.seq}`
  if (replay) return `replay of ${name}: the same receipt`
  const parts = [
    ...batch.groups.map((group, at) => `${group.map(describeChange).join(', ')}${refusal(receipt.groups[at])}`),
    ...batch.renewals.map(
      ({ id, fence, lease }, at) =>
        `${lease === 0 ? 'give up' : 'renew'} ${id}@${fence}${refusal(receipt.renewals[at])}`,
    ),
    ...batch.asks.map(({ want, ahead }, at) => {
      const jobs = (receipt.asks[at] ?? []).map((job) => `${job.id}@${job.fence}${job.ahead ? ' ahead' : ''}`)
      return `claim ${want}+${ahead} → ${jobs.length === 0 ? 'none' : jobs.join(' ')}`
    }),
  ]
  return `applied ${name}: ${parts.join('; ')}`
}

function refusal(verdict: Verdict | undefined): string {
  return verdict === undefined || verdict.ok ? '' : ` REFUSED ${verdict.why}`
}

function describeChange(change: Change): string {
  switch (change.kind) {
    case 'insert': {
      const { job, edges } = change
      return `add ${job.id} ${job.queue}/${job.name} ${job.state}${after(edges)}`
    }
    case 'move': {
      const { why, id, fence, to, waitsFor = [] } = change
      return `${why === undefined ? '' : `${why} `}${id}@${fence} to ${to}${after(waitsFor)}`
    }
    case 'note':
      return `note ${change.id}@${change.fence}`
    case 'release':
      return `release ${change.chain}`
    case 'put':
      return `put ${change.key} v${change.version}`
  }
}

function after(edges: readonly NewEdge[]): string {
  return edges.length === 0 ? '' : ` after ${edges.map((edge) => `${edge.on}(${edge.policy})`).join(' ')}`
}
