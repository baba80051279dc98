// queue/events/event-types.ts: events by the jobs declared: told apart by `name`, with the results that were said.
import type { JobDefinitions, NameOf, PhasesOf, OwnResultOf } from '../define.js'

/** The types of events that need not be about a job. */
type OfNoJob = 'drained' | 'paused' | 'resumed' | 'worker-started' | 'worker-stopping' | 'worker-stopped' | 'error'

/** The end of a job, with its result, for each name. */
type Completed<Event, Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? Event & { readonly name: Name; readonly result: OwnResultOf<Jobs[Name]> }
  : never

/** What happens to a phase, for each name and each phase that was declared for it. */
type OfPhase<Event, Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? unknown extends PhasesOf<Jobs[Name]>
    ? Event & { readonly name: Name }
    : {
        [Phase in keyof PhasesOf<Jobs[Name]>]: Event & {
          readonly name: Name
          readonly phase: Phase
          readonly result?: PhasesOf<Jobs[Name]>[Phase]
        }
      }[keyof PhasesOf<Jobs[Name]>]
  : never

/** How far a job is, for each name: a number where it has declared phases. */
type Progress<Event, Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? unknown extends PhasesOf<Jobs[Name]>
    ? Event & { readonly name: Name }
    : Event & {
        readonly name: Name
        readonly progress: number
        readonly phase: keyof PhasesOf<Jobs[Name]>
        readonly phaseProgress: number
      }
  : never

/** An event of a queue that takes these jobs; where none were declared, as it is. */
export type Narrowed<Type extends string, Event, Jobs extends JobDefinitions> =
  string extends NameOf<Jobs>
    ? Event
    : Type extends 'completed'
      ? Completed<Event, Jobs, NameOf<Jobs>>
      : Type extends 'phase'
        ? OfPhase<Event, Jobs, NameOf<Jobs>>
        : Type extends 'progress'
          ? Progress<Event, Jobs, NameOf<Jobs>>
          : Type extends OfNoJob
            ? Event
            : Event & { readonly name: NameOf<Jobs> }
