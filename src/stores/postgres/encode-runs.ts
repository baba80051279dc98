// stores/postgres/encode-runs.ts: groups of which many are alike, as one step of `commit_v1` takes them: moves, and notes by holders.
import type { Change, Move, MoveFields, Note } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { Group } from '../../store/store.js'
import { UNIT } from './rows.js'

/**
 * What becomes of a job, as `sql/moves.ts` reads it: completed, failed or cancelled (in capitals: and then removed);
 * delayed, or delayed for another attempt (`r`); waiting where it stood, or behind all others (`n`); removed, of which
 * those that wait for it are told (`G`), or not (`g`).
 */
type Verb = 'c' | 'f' | 'x' | 'C' | 'F' | 'X' | 'd' | 'r' | 'w' | 'n' | 'g' | 'G'

/** Who moves a job: its holder, or somebody else; or it is removed. */
type By = 'held' | 'hand' | 'gone'

/** A group that is one move, and what follows from it alone. */
interface PlainMove {
  readonly move: Move
  readonly verb: Verb
  readonly by: By
  /** What its holder said just before. */
  readonly note: Note | undefined
}

/** Moves of jobs, all of them by holders, by somebody else, or removals. */
export interface MoveRun {
  readonly k: 'm'
  readonly by: By
  readonly n: number[]
  readonly id: string[]
  readonly f: number[]
  readonly v: Verb[]
  readonly set: MoveFields[]
  readonly w: (More | null)[]
}

/** What a note says besides: a memo, what goes with its progress, and what is told. */
interface More {
  readonly p?: string
  readonly m?: string
  readonly a?: string
  readonly t?: readonly (readonly [type: string, about: string])[]
}

/** Progress, memos and log lines of jobs, by their holders. */
export interface NoteRun {
  readonly k: 'n'
  readonly n: number[]
  readonly id: string[]
  readonly f: number[]
  readonly p: (string | null)[]
  readonly l: (readonly string[])[]
  readonly w: (More | null)[]
}

export function moveRun(by: By): MoveRun {
  return { k: 'm', by, n: [], id: [], f: [], v: [], set: [], w: [] }
}

export function addMove(run: MoveRun, { move, verb, note }: PlainMove, n: number): void {
  run.n.push(n)
  run.id.push(move.id)
  run.f.push(move.fence)
  run.v.push(verb)
  run.set.push(move.set)
  run.w.push(note === undefined ? null : moreOf(note, true))
}

export function noteRun(): NoteRun {
  return { k: 'n', n: [], id: [], f: [], p: [], l: [], w: [] }
}

export function addNote(run: NoteRun, note: Note, n: number): void {
  const { id, fence, progress, logs } = note
  run.n.push(n)
  run.id.push(id)
  run.f.push(fence)
  run.p.push(progress ?? null)
  run.l.push(logs ?? [])
  run.w.push(moreOf(note, false))
}

/** What a note says besides, and its progress where there is no other place for it. */
function moreOf({ progress, memo, about, tells }: Note, whole: boolean): More | null {
  if ((memo ?? about ?? tells ?? (whole ? progress : undefined)) === undefined) return null
  return {
    ...(whole && progress !== undefined && { p: progress }),
    ...(memo !== undefined && { m: memo }),
    ...(about !== undefined && { a: about }),
    ...(tells !== undefined && { t: tells.map((each) => [each.type, each.about] as const) }),
  }
}

/** The note that a group is, if its holder wrote it. */
export function plainNote(group: Group): Note | undefined {
  const [note] = group
  if (group.length !== 1 || note?.kind !== 'note' || !note.held || note.data !== undefined) return undefined
  if (note.steps !== undefined) return undefined // written the long way
  if ((note.progress ?? note.memo) !== undefined) return note
  return note.tells !== undefined || note.logs === undefined || note.logs.length === 0 ? undefined : note
}

/** The move that a group is, if it does no more than one of the verbs says. */
export function plainMove(group: Group): PlainMove | undefined {
  const [note, ...rest] = group
  if (note?.kind !== 'note') return onlyMove(group)
  if (!note.held || note.data !== undefined || note.steps !== undefined || note.logs !== undefined) return undefined
  const move = onlyMove(rest)
  const together = move?.by === 'held' && move.move.id === note.id && move.move.fence === note.fence
  return together ? { ...move, note } : undefined
}

function onlyMove(group: Group): PlainMove | undefined {
  const [move, release, removal] = group
  if (move?.kind !== 'move' || move.closesBroken || move.reaps || move.waitsFor || move.reopens) return undefined
  if (!isPlain(move.set)) return undefined
  const verb =
    move.to === 'removed'
      ? removed(move, release, group.length)
      : isFinished(move.to)
        ? ended(move, release, removal, group.length)
        : goingOn(move, group.length)
  if (verb === undefined) return undefined
  return { move, verb, by: move.to === 'removed' ? 'gone' : move.held ? 'held' : 'hand', note: undefined }
}

const ends: Partial<Record<Move['to'], Verb>> = { completed: 'c', failed: 'f', cancelled: 'x' }
const removals: Partial<Record<Move['to'], Verb>> = { completed: 'C', failed: 'F', cancelled: 'X' }

function ended(
  move: Move,
  release: Change | undefined,
  removal: Change | undefined,
  changes: number,
): Verb | undefined {
  const { set } = move
  if (move.why !== undefined || set.run !== undefined || set.attempt !== undefined) return undefined
  if (release?.kind !== 'release' || release.chain !== move.id || release.outcome !== move.to) return undefined
  if (changes === 2) return ends[move.to]
  const follows =
    changes === 3 && isRemoval(removal) && removal.id === move.id && removal.fence === move.fence + 1 && !removal.held
  return follows ? removals[move.to] : undefined
}

function goingOn({ to, why, held, place, set }: Move, changes: number): Verb | undefined {
  if (changes !== 1 || set.result !== undefined || set.staleIn !== undefined || set.deleteIn !== undefined)
    return undefined
  if (to === 'delayed' && set.run !== undefined) {
    return why === undefined ? 'd' : why === 'retrying' ? 'r' : undefined
  }
  if (to !== 'waiting' || why !== undefined || set.run !== undefined) return undefined
  if (place === 'old') return 'w'
  return held ? undefined : 'n'
}

function removed(move: Move, release: Change | undefined, changes: number): Verb | undefined {
  if (!isRemoval(move) || move.held) return undefined
  if (changes === 1) return 'g'
  if (changes !== 2 || release?.kind !== 'release' || release.chain !== move.id) return undefined
  return release.outcome === 'cancelled' ? 'G' : undefined
}

/** Whether a change is a removal, and nothing but. */
function isRemoval(change: Change | undefined): change is Move {
  if (change?.kind !== 'move' || change.to !== 'removed' || change.why !== undefined) return false
  if (change.closesBroken || change.reaps) return false
  for (const field in change.set) if (change.set[field as keyof MoveFields] !== undefined) return false
  return true
}

/** Whether a move sets no more than there is room for in a run. */
function isPlain(set: MoveFields): boolean {
  for (const field in set) {
    const value = set[field as keyof MoveFields]
    if (value !== undefined && (value === null || !fields.has(field))) return false
  }
  return set.run === undefined || (set.run !== null && 'in' in set.run)
}

const fields: ReadonlySet<string> = new Set<keyof MoveFields>([
  'result',
  'error',
  'attempt',
  'run',
  'staleIn',
  'deleteIn',
])

/**
 * A run as `commit_v1` takes it: where there are many, their ids travel as one text, and so does whatever else they have.
 * Completions by holders, by far the most frequent, have no more than a result, and what their holder said just before.
 */
export function packed(run: MoveRun | NoteRun): object {
  const { n, id, f } = run
  const [first, last] = [n[0]!, n.at(-1)!]
  const whose = {
    n: last - first === n.length - 1 ? first : n,
    id: id.join(UNIT),
    f: f.every((fence) => fence === f[0]) ? f[0] : f.join(','),
  }
  if (run.k === 'n') {
    return {
      k: 'n',
      ...whose,
      ...listed('r', run.p, UNIT),
      ...(run.l.some(({ length }) => length > 0) && { l: run.l }),
      ...(run.w.some((more) => more !== null) && { w: run.w }),
    }
  }
  const { by, v, set } = run
  const result = listed(
    'r',
    set.map((each) => each.result ?? null),
    UNIT,
  )
  const noted = run.w.some((more) => more !== null)
  const plain = by === 'held' && v.every((verb, at) => verb === 'c' && isOnlyResult(set[at]!))
  if (plain) return { k: 'c', ...whose, ...result, ...(noted && { w: run.w }) }
  return {
    k: 'm',
    ...whose,
    v: v.join(''),
    ...(by !== 'held' && { [by]: true }),
    ...(noted && { w: run.w }),
    ...result,
    ...listed(
      'e',
      set.map(({ error }) => (error ? JSON.stringify(error) : null)),
      UNIT,
    ),
    ...listed(
      'at',
      set.map(({ attempt }) => attempt),
      ',',
    ),
    ...listed(
      'ri',
      set.map(({ run: when }) => (when && 'in' in when ? Math.floor(when.in) : null)),
      ',',
    ),
    ...listed(
      'si',
      set.map(({ staleIn }) => staleIn),
      ',',
    ),
    ...listed(
      'di',
      set.map(({ deleteIn }) => deleteIn),
      ',',
    ),
  }
}

/** Values in one text, if there are any: empty for those that have none. */
function listed(name: string, values: readonly (string | number | null | undefined)[], between: string): object {
  return values.some((value) => value != null) ? { [name]: values.map((value) => value ?? '').join(between) } : {}
}

function isOnlyResult({ error, staleIn, deleteIn }: MoveFields): boolean {
  return error === undefined && staleIn === undefined && deleteIn === undefined
}
