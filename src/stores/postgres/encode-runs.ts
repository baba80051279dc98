// stores/postgres/encode-runs.ts: encodes many similar groups as one step of `commit`: moves, and notes by lease holders.
import type { Change, Move, MoveFields, Note } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { Group } from '../../store/store.js'
import { UNIT } from './rows.js'

/**
 * What a move does to a job, as `functions/move-many.ts` reads it: completed, failed or cancelled (`c`, `f`, `x`; in
 * capitals: and then removed); delayed (`d`), or delayed for another attempt (`r`); waiting with its old order (`w`), or
 * behind all others (`n`); removed with a release of its dependents (`G`), or without (`g`).
 */
type Verb = 'c' | 'f' | 'x' | 'C' | 'F' | 'X' | 'd' | 'r' | 'w' | 'n' | 'g' | 'G'

/** Who moves a job: its lease holder (`held`) or another caller (`hand`); `gone` if the move removes it. */
type By = 'held' | 'hand' | 'gone'

/** A group of one move with its release and removal. */
interface PlainMove {
  readonly move: Move
  readonly verb: Verb
  readonly by: By
  /** The note that the lease holder wrote in the same group. */
  readonly note: Note | undefined
}

/** Moves of jobs that all have the same `by`. */
export interface MoveRun {
  readonly k: 'm'
  readonly by: By
  readonly n: number[]
  readonly id: string[]
  readonly f: number[]
  readonly v: Verb[]
  readonly set: MoveFields[]
  readonly w: (NoteExtras | null)[]
}

/** The optional parts of a note: progress, memo, `about`, and events. */
interface NoteExtras {
  readonly p?: string
  readonly m?: string
  readonly a?: string
  readonly t?: readonly (readonly [type: string, about: string])[]
}

/** Progress, memos and log lines of jobs, written by their lease holders. */
export interface NoteRun {
  readonly k: 'n'
  readonly n: number[]
  readonly id: string[]
  readonly f: number[]
  readonly p: (string | null)[]
  readonly l: (readonly string[])[]
  readonly w: (NoteExtras | null)[]
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
  run.w.push(note === undefined ? null : extrasOf(note, true))
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
  run.w.push(extrasOf(note, false))
}

/** The optional parts of a note, with its progress for a move, which has no field of its own for that. */
function extrasOf({ progress, memo, about, events }: Note, withProgress: boolean): NoteExtras | null {
  if ((memo ?? about ?? events ?? (withProgress ? progress : undefined)) === undefined) return null
  return {
    ...(withProgress && progress !== undefined && { p: progress }),
    ...(memo !== undefined && { m: memo }),
    ...(about !== undefined && { a: about }),
    ...(events !== undefined && { t: events.map((each) => [each.type, each.about] as const) }),
  }
}

/** The note of a group that is one note by the lease holder and fits into a run. */
export function plainNote(group: Group): Note | undefined {
  const [note] = group
  if (group.length !== 1 || note?.kind !== 'note' || !note.held || note.data !== undefined) return undefined
  if (note.steps !== undefined) return undefined // not part of a run
  if ((note.progress ?? note.memo) !== undefined) return note
  return note.events !== undefined || note.logs === undefined || note.logs.length === 0 ? undefined : note
}

/** The move of a group, if one of the verbs describes all that the group does. */
export function plainMove(group: Group): PlainMove | undefined {
  const [note, ...rest] = group
  if (note?.kind !== 'note') return onlyMove(group)
  if (!note.held || note.data !== undefined || note.steps !== undefined || note.logs !== undefined) return undefined
  const move = onlyMove(rest)
  const sameLease = move?.by === 'held' && move.move.id === note.id && move.move.fence === note.fence
  return sameLease ? { ...move, note } : undefined
}

function onlyMove(group: Group): PlainMove | undefined {
  const [move, release, removal] = group
  if (move?.kind !== 'move' || move.closesBroken || move.reaps || move.waitsFor || move.reopens) return undefined
  if (!isPlain(move.set)) return undefined
  const verb =
    move.to === 'removed'
      ? removalVerb(move, release, group.length)
      : isFinished(move.to)
        ? endVerb(move, release, removal, group.length)
        : otherVerb(move, group.length)
  if (verb === undefined) return undefined
  return { move, verb, by: move.to === 'removed' ? 'gone' : move.held ? 'held' : 'hand', note: undefined }
}

const endVerbs: Partial<Record<Move['to'], Verb>> = { completed: 'c', failed: 'f', cancelled: 'x' }
const endAndRemoveVerbs: Partial<Record<Move['to'], Verb>> = { completed: 'C', failed: 'F', cancelled: 'X' }

function endVerb(
  move: Move,
  release: Change | undefined,
  removal: Change | undefined,
  changes: number,
): Verb | undefined {
  const { set } = move
  if (move.why !== undefined || set.run !== undefined || set.attempt !== undefined) return undefined
  if (release?.kind !== 'release' || release.chain !== move.id || release.outcome !== move.to) return undefined
  if (changes === 2) return endVerbs[move.to]
  const removesIt =
    changes === 3 && isRemoval(removal) && removal.id === move.id && removal.fence === move.fence + 1 && !removal.held
  return removesIt ? endAndRemoveVerbs[move.to] : undefined
}

function otherVerb({ to, why, held, place, set }: Move, changes: number): Verb | undefined {
  if (changes !== 1 || set.result !== undefined || set.staleIn !== undefined || set.deleteIn !== undefined)
    return undefined
  if (to === 'delayed' && set.run !== undefined) {
    return why === undefined ? 'd' : why === 'retrying' ? 'r' : undefined
  }
  if (to !== 'waiting' || why !== undefined || set.run !== undefined) return undefined
  if (place === 'old') return 'w'
  return held ? undefined : 'n'
}

function removalVerb(move: Move, release: Change | undefined, changes: number): Verb | undefined {
  if (!isRemoval(move) || move.held) return undefined
  if (changes === 1) return 'g'
  if (changes !== 2 || release?.kind !== 'release' || release.chain !== move.id) return undefined
  return release.outcome === 'cancelled' ? 'G' : undefined
}

/** Whether a change is a removal that sets no fields. */
function isRemoval(change: Change | undefined): change is Move {
  if (change?.kind !== 'move' || change.to !== 'removed' || change.why !== undefined) return false
  if (change.closesBroken || change.reaps) return false
  for (const field in change.set) if (change.set[field as keyof MoveFields] !== undefined) return false
  return true
}

/** Whether a move sets only fields that a run can hold. */
function isPlain(set: MoveFields): boolean {
  for (const field in set) {
    const value = set[field as keyof MoveFields]
    if (value !== undefined && (value === null || !runFields.has(field))) return false
  }
  return set.run === undefined || (set.run !== null && 'in' in set.run)
}

const runFields: ReadonlySet<string> = new Set<keyof MoveFields>([
  'result',
  'error',
  'attempt',
  'run',
  'staleIn',
  'deleteIn',
])

/**
 * Encodes a run for `commit`: ids are joined into one text, and so are the values of each other field. Completions by lease
 * holders, by far the most frequent moves, have their own short form with the result and the holder's note.
 */
export function packed(run: MoveRun | NoteRun): object {
  const { n, id, f } = run
  const [first, last] = [n[0]!, n.at(-1)!]
  const targets = {
    n: last - first === n.length - 1 ? first : n,
    id: id.join(UNIT),
    f: f.every((fence) => fence === f[0]) ? f[0] : f.join(','),
  }
  if (run.k === 'n') {
    return {
      k: 'n',
      ...targets,
      ...joined('r', run.p, UNIT),
      ...(run.l.some(({ length }) => length > 0) && { l: run.l }),
      ...(run.w.some((extras) => extras !== null) && { w: run.w }),
    }
  }
  const { by, v, set } = run
  const result = joined(
    'r',
    set.map((each) => each.result ?? null),
    UNIT,
  )
  const hasNotes = run.w.some((extras) => extras !== null)
  const plain = by === 'held' && v.every((verb, at) => verb === 'c' && isOnlyResult(set[at]!))
  if (plain) return { k: 'c', ...targets, ...result, ...(hasNotes && { w: run.w }) }
  return {
    k: 'm',
    ...targets,
    v: v.join(''),
    ...(by !== 'held' && { [by]: true }),
    ...(hasNotes && { w: run.w }),
    ...result,
    ...joined(
      'e',
      set.map(({ error }) => (error ? JSON.stringify(error) : null)),
      UNIT,
    ),
    ...joined(
      'at',
      set.map(({ attempt }) => attempt),
      ',',
    ),
    ...joined(
      'ri',
      set.map(({ run: when }) => (when && 'in' in when ? Math.floor(when.in) : null)),
      ',',
    ),
    ...joined(
      'si',
      set.map(({ staleIn }) => staleIn),
      ',',
    ),
    ...joined(
      'di',
      set.map(({ deleteIn }) => deleteIn),
      ',',
    ),
  }
}

/** A field with all values joined into one text, empty for absent ones; no field if all are absent. */
function joined(name: string, values: readonly (string | number | null | undefined)[], between: string): object {
  return values.some((value) => value != null) ? { [name]: values.map((value) => value ?? '').join(between) } : {}
}

function isOnlyResult({ error, staleIn, deleteIn }: MoveFields): boolean {
  return error === undefined && staleIn === undefined && deleteIn === undefined
}
