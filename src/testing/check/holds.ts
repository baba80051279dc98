// testing/check/holds.ts: checks that nobody starts a job that is held.
import type { Put } from '../../job/change.js'
import type { JobRecord, Time } from '../../job/job.js'
import { cellKey } from '../../store/settings.js'
import type { Group } from '../../store/store.js'
import type { Landing, RunEntry } from './simulated-history.js'
import type { Report } from './violation.js'

type Held = Pick<JobRecord, 'queue' | 'name'> & { readonly group?: string | undefined }

const PAUSE = cellKey.pause('')

/** A hold that a handler added. */
interface OwnHold {
  readonly scope: Held & { readonly of: 'name' | 'group' | 'queue' }
  /** How many claims of all processes came before it. */
  readonly claims: number
}

/**
 * Tracks holds, as commits add and remove them. No claim returns a job that is held; and a process whose own handler
 * held jobs returns those that it has leased and not started.
 */
export class HoldChecks {
  readonly #report: Report
  /** The ends of holds by queue, then by what they are for. */
  readonly #ends = new Map<string, Map<string, Time>>()
  /** By process. */
  readonly #own = new Map<string, OwnHold[]>()
  /** The claimed jobs by id and fence, and the number of their claim. */
  readonly #claimed = new Map<string, Held & { readonly claim: number }>()
  #claims = 0

  constructor(report: Report) {
    this.#report = report
  }

  /** When the last hold of a job ends; 0 if there has been none. */
  until({ queue, name, group }: Held): Time {
    const ends = this.#ends.get(queue)
    if (ends === undefined) return 0
    const keys = ['', `n${name}`, ...(group === undefined ? [] : [`g${group}`])]
    return Math.max(...keys.map((key) => ends.get(key) ?? 0))
  }

  /** Applies a landing, and checks what it claimed. */
  follow({ time, process, batch, receipt }: Landing): void {
    batch.groups.forEach((group, at) => {
      if (receipt.groups[at]?.ok === true) this.#group(process, group, receipt.now)
    })
    for (const job of receipt.asks.flat()) {
      const until = this.until(job)
      if (until > receipt.now) {
        this.#report('hold', time, job.id, `${process} got it while it is held for another ${until - receipt.now} ms.`)
      }
      const { queue, name, group } = job
      this.#claimed.set(`${job.id}@${job.fence}`, { queue, name, group, claim: ++this.#claims })
    }
  }

  #group(process: string, group: Group, now: Time): void {
    for (const change of group) {
      if (change.kind !== 'put' || !change.key.startsWith(PAUSE)) continue
      const queue = change.key.slice(PAUSE.length)
      if (change.hold === undefined) this.#ends.set(queue, endsIn(change))
      else {
        const { name, group: of, for: length, job } = change.hold
        const key = name !== undefined ? `n${name}` : of !== undefined ? `g${of}` : ''
        const ends = this.#ends.get(queue) ?? new Map<string, Time>()
        this.#ends.set(queue, ends.set(key, Math.max(ends.get(key) ?? 0, now + length)))
        if (job === undefined) continue
        const scope = { queue, name: name ?? '', group: of, of: kindOf(key) }
        this.#own.set(process, [...(this.#own.get(process) ?? []), { scope, claims: this.#claims }])
      }
    }
  }

  /** A run starts. */
  ran({ kind, time, run }: RunEntry): void {
    const holds = kind === 'started' ? this.#own.get(run.process) : undefined
    const job = this.#claimed.get(`${run.id}@${run.fence}`)
    if (holds === undefined || job === undefined) return
    const found = holds.find(({ scope, claims }) => {
      return (
        job.claim <= claims && job.queue === scope.queue && (scope.of === 'queue' || job[scope.of] === scope[scope.of])
      )
    })
    if (found === undefined) return
    const { of } = found.scope
    this.#report('hold', time, run.id, `${run.process} started it, leased before its own handler held the ${of}.`)
  }
}

function kindOf(key: string): 'name' | 'group' | 'queue' {
  return key === '' ? 'queue' : key.startsWith('n') ? 'name' : 'group'
}

/** The ends in a cell that was written as a whole. */
function endsIn({ value }: Put): Map<string, Time> {
  const cell = value === undefined ? {} : (JSON.parse(value) as { holds?: Record<string, { until: Time }> })
  return new Map(Object.entries(cell.holds ?? {}).map(([key, { until }]) => [key, until]))
}
