// examples/demo/account.ts: the closing account: the final state of every acknowledged job.
import type { Board, Seen } from './board.js'
import { kinds } from './jobs.js'
import type { Kind } from './jobs.js'

/** A job as the store has it. */
interface Found {
  readonly id: string
  readonly name: string
  readonly state: string
  readonly attempt: number
}

/** The jobs by kind, state and attempt, with remarks. */
export function table(found: readonly Found[], board: Board): string {
  const rows = new Map<string, Found[]>()
  const order = ({ name, attempt }: Found): number => kinds.indexOf(name as Kind) * 100 + attempt
  for (const job of found.toSorted((one, other) => order(one) - order(other))) {
    const key = `${job.name.padEnd(12)}${job.state.padEnd(12)}${String(job.attempt).padStart(7)}`
    rows.set(key, [...(rows.get(key) ?? []), job])
  }
  return [
    `${'kind'.padEnd(12)}${'state'.padEnd(12)}attempt   jobs`,
    ...Array.from(rows, ([key, jobs]) => {
      const notes = jobs.flatMap(({ id }) => remark(id, board) ?? [])
      return `${key}${String(jobs.length).padStart(7)}   ${notes.join('; ')}`.trimEnd()
    }),
    `${'all'.padEnd(31)}${String(found.length).padStart(7)}`,
  ].join('\n')
}

function remark(id: string, board: Board): string | undefined {
  const { lostBy, failures } = board.jobs.get(id)!
  if (lostBy.length > 0) return `${id}, taken over`
  return failures.length > 0 ? `${id}, retried` : undefined
}

/** What is wrong with the account; empty if all is well. */
export function problems(acknowledged: readonly string[], found: readonly Found[], board: Board): string[] {
  const ids = new Set(found.map(({ id }) => id))
  const seen = [...board.jobs.values()]
  return [
    ...acknowledged.filter((id) => !ids.has(id)).map((id) => `${id} was acknowledged and is lost`),
    ...found.filter(({ state }) => state !== 'completed').map(({ id, state }) => `${id} is ${state}`),
    ...seen.filter(({ completions }) => completions !== 1).map((job) => `${job.id} completed ${job.completions} times`),
    ...(found.length === acknowledged.length
      ? []
      : [`of ${acknowledged.length} jobs added, ${found.length} are there`]),
    ...(takenOver(board).length > 0 ? [] : ['no job was taken over']),
    ...(seen.some(({ failures }) => failures.length > 0) ? [] : ['no job was retried']),
  ]
}

/** The account in words. */
export function conclusion(found: readonly Found[], board: Board): string {
  return [
    `${found.length} jobs were added, and each was completed once: nothing was lost.`,
    ...takenOver(board).map(
      ({ id, worker, attempt }) =>
        `${id} was taken over by ${worker} after ${board.killed} was killed: attempt ${attempt}.`,
    ),
  ].join('\n')
}

function takenOver({ jobs, killed }: Board): Seen[] {
  return [...jobs.values()].filter(
    ({ lostBy, worker }) => killed !== undefined && lostBy.includes(killed) && worker !== killed,
  )
}
