// queue/events/event-types.ts: event types narrowed by the declared jobs: their names, results and phases.
import type { JobDefinitions, NameOf, PhasesOf, OwnResultOf } from '../define.js'

/** The event types that may concern no job. */
type NonJobEvent =
  | 'operation-ended'
  | 'drained'
  | 'paused'
  | 'resumed'
  | 'worker-started'
  | 'worker-stopping'
  | 'worker-stopped'
  | 'error'

/** The `completed` event with the job's result, for each name. */
type CompletedEvent<Event, Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? Event & { readonly name: Name; readonly result: OwnResultOf<Jobs[Name]> }
  : never

/** The `phase` event, for each name and each declared phase. */
type PhaseEvent<Event, Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
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

/** The `progress` event, for each name: a number if the job has declared phases. */
type ProgressEvent<Event, Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? unknown extends PhasesOf<Jobs[Name]>
    ? Event & { readonly name: Name }
    : Event & {
        readonly name: Name
        readonly progress: number
        readonly phase: keyof PhasesOf<Jobs[Name]>
        readonly phaseProgress: number
      }
  : never

/** An event of a queue with these jobs; unchanged if none are declared. */
export type Narrowed<Type extends string, Event, Jobs extends JobDefinitions> =
  string extends NameOf<Jobs>
    ? Event
    : Type extends 'completed'
      ? CompletedEvent<Event, Jobs, NameOf<Jobs>>
      : Type extends 'phase'
        ? PhaseEvent<Event, Jobs, NameOf<Jobs>>
        : Type extends 'progress'
          ? ProgressEvent<Event, Jobs, NameOf<Jobs>>
          : Type extends NonJobEvent
            ? Event
            : Event & { readonly name: NameOf<Jobs> }
