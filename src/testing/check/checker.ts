// testing/check/checker.ts: checks a history and its final state against every rule.
import { isFinished } from '../../job/job.js'
import { CallChecks, EventChecks } from './call-results.js'
import { Expiries, KeyChecks, Pauses, Replays, checkClaims } from './claims.js'
import { FlowChecks } from './flows.js'
import { HoldChecks } from './holds.js'
import { LatenessChecks } from './lateness.js'
import type { LatenessSettings } from './lateness.js'
import { LeaseChecks } from './leases.js'
import { OperationChecks } from './operations.js'
import { ReceivedChecks } from './received.js'
import { ScheduleChecks } from './schedules.js'
import { StepChecks } from './steps.js'
import type { LeaseSettings } from './leases.js'
import { LimitChecks } from './limits.js'
import type { Entry, FinalState } from './simulated-history.js'
import { Ledger } from './ledger.js'
import { EPOCH } from '../world/process.js'
import type { Report, Violation } from './violation.js'

/** The most violations that are reported; further ones would mostly follow from the first. */
const MAX_VIOLATIONS = 50

/** Without faults, due jobs are handled within this time: upkeep looks at least every 30 s. */
const OVERDUE = 60_000

/** Returns the violations in a history. Pure: the same history gives the same result. */
export function checkHistory(
  entries: readonly Entry[],
  final: FinalState,
  settings: LeaseSettings & LatenessSettings,
): readonly Violation[] {
  const violations: Violation[] = []
  const report: Report = (rule, time, id, message) => {
    if (violations.length < MAX_VIOLATIONS) violations.push({ rule, time, id, message })
  }
  const leases = new LeaseChecks(report, settings)
  const keys = new KeyChecks(report)
  const calls = new CallChecks(report)
  const flows = new FlowChecks(report)
  const events = new EventChecks()
  const steps = new StepChecks(report)
  const received = new ReceivedChecks(report)
  const ledger = new Ledger(report, [leases, keys, calls, flows, steps, received])
  const lateness = new LatenessChecks(report, settings)
  const limits = new LimitChecks(report)
  const schedules = new ScheduleChecks(report)
  const pauses = new Pauses()
  const holds = new HoldChecks(report)
  const operations = new OperationChecks(report)
  const expiries = new Expiries()
  const replays = new Replays()

  for (const entry of entries) {
    switch (entry.kind) {
      case 'landing':
        replays.follow(entry, report)
        if (entry.replay) break
        pauses.follow(entry)
        holds.follow(entry)
        expiries.follow(entry, report)
        ledger.land(entry)
        schedules.follow(entry)
        operations.landed(entry, ledger.jobs)
        leases.landed(entry, ledger.jobs)
        limits.landed(entry, () => leases.counting(entry.receipt.now))
        checkClaims(entry, pauses, report)
        lateness.landed(entry, pauses, holds)
        break
      case 'received':
        received.received(entry)
        break
      case 'started':
      case 'aborted':
      case 'ended':
        leases.ran(entry)
        lateness.ran(entry)
        holds.ran(entry)
        break
      case 'called':
        calls.called(entry)
        break
      case 'logged':
        calls.logged(entry.id, entry.time)
        break
      case 'dependencies':
        flows.dependenciesRead(entry, ledger.jobs.get(entry.id))
        break
      case 'stepped':
        steps.stepped(entry)
        break
      case 'signalled':
        steps.signalled(entry)
        break
      case 'returned':
        calls.returned(entry)
        steps.returned(entry)
        break
      case 'event':
        events.received(entry)
        break
      case 'gone':
        leases.gone(entry.process)
        calls.gone(entry.process)
        lateness.gone(entry.process, entry.time)
        break
      case 'disturbed':
        lateness.disturbed(entry.process, entry.time, entry.until)
        received.disturbed(entry.process, entry.until)
    }
  }
  const time = final.now - EPOCH
  ledger.close(time, final.jobs)
  calls.close(time)
  lateness.close(time)
  events.close(time, ledger.expected, report)
  checkEnds(final, report)
  return violations
}

/** With live workers and without faults, every job ends, and every due job is handled. */
function checkEnds({ now, jobs }: FinalState, report: Report): void {
  for (const { id, kind, state, fence, attempt, attempts, dueAt } of jobs) {
    if (kind === 'signal' && (dueAt ?? 0) > now) continue // a signal that no job waits for is kept for as long as its job
    if (!isFinished(state)) {
      report('lost', now - EPOCH, id, `It is still ${state} (fence ${fence}, attempt ${attempt} of ${attempts}).`)
    } else if (dueAt !== undefined && dueAt < now - OVERDUE) {
      report('overdue', now - EPOCH, id, `It was due ${now - dueAt} ms ago and is still ${state}.`)
    }
  }
}
