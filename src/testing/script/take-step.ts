// testing/script/take-step.ts: performs the steps of a script that affect processes.
import type { Operation, Step } from './script.js'
import type { Actor, Stage } from '../world/stage.js'

/** Performs one step of a script; operations are passed to `perform`. */
export function takeStep(stage: Stage, step: Step, perform?: (stage: Stage, step: Operation) => void): void {
  const { history } = stage
  switch (step.do) {
    case 'spawn':
      history.count('process:spawn')
      stage.spawn(step.process, 'worker', step.skew)
      return
    case 'freeze':
      return on(stage, step, `freezes for ${step.for} ms`, ({ process }) => process.freeze(step.for))
    case 'kill':
      return on(stage, step, 'will be killed', (actor) => stage.end(actor, 'is killed'))
    case 'close':
      return on(stage, step, `closes within ${step.timeout} ms`, (actor) => {
        history.disturb(step.process, Infinity)
        actor.process.enter('deferred', () => void stage.close(actor, step.timeout))
      })
    case 'rest':
      return on(stage, step, `pauses its worker for ${step.for} ms`, ({ process, worker }) => {
        history.disturb(step.process, step.for)
        process.enter('deferred', () => worker?.pause())
        stage.timeline.after(step.for, () => process.enter('deferred', () => worker?.resume()))
      })
    case 'outage': {
      const { process: name } = step
      history.count(name === undefined ? 'process:blackout' : 'process:outage')
      history.writeTrace(name ?? '-', `cannot reach the store for ${step.for} ms`)
      for (const { process } of stage.actors.values()) {
        const affected = name === undefined ? !process.exemptFromOutages : name === process.name
        if (affected) process.outageUntil = stage.timeline.time + step.for
      }
      return
    }
    default:
      perform?.(stage, step)
  }
}

/** Runs `work` on a process, if it is alive. */
function on(
  stage: Stage,
  step: { readonly do: string; readonly process: string },
  text: string,
  work: (actor: Actor) => void,
): void {
  const actor = stage.living(step.process)
  if (actor === undefined) return
  stage.history.count(`process:${step.do}`)
  stage.history.writeTrace(step.process, text)
  work(actor)
}
