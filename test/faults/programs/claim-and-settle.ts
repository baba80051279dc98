// A program that claims jobs at the port itself, and settles them on command, whether it still holds them or not.
import { sqlite } from '../../../src/sqlite.js'
import { Driver } from '../../../src/conformance/driver.js'
import { complete, fail, handBack, note } from '../../../src/conformance/changes.js'
import type { Verdict } from '../../../src/store/store.js'
import { input, on, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface HolderInput {
  readonly path: string
  /** How many jobs it claims. */
  readonly jobs: number
  /** How long it holds them, in milliseconds. */
  readonly lease: number
}

/** What the program sends. */
export type HolderMessage =
  | { readonly kind: 'claimed'; readonly fences: Readonly<Record<string, number>> }
  | { readonly kind: 'verdicts'; readonly verdicts: Readonly<Record<string, readonly string[]>> }

const { path, jobs: count, lease } = input() as HolderInput
const store = sqlite(path)
const driver = new Driver(store, 'holder')
const claimed = await driver.claim(count, { queues: ['work'], worker: 'holder', lease })
const outcomeOf = (verdict: Verdict): string => (verdict.ok ? 'landed' : verdict.why)

/** Tries each way with a job of its own, and the last of them with all that are left, at once. */
async function settle(): Promise<void> {
  const [renewed, noted, handedBack, failed, completed, ...rest] = claimed
  const verdicts = {
    renewed: [outcomeOf(await driver.renew(renewed!))],
    noted: [outcomeOf(await driver.send(note(noted!, { progress: 'late' })))],
    'handed back': [outcomeOf(await driver.send(handBack(handedBack!)))],
    failed: [outcomeOf(await driver.send(fail(failed!)))],
    completed: [outcomeOf(await driver.send(complete(completed!, { result: 'late' })))],
    'completed at once': (await driver.commit({ groups: rest.map((job) => complete(job)) })).groups.map(outcomeOf),
  }
  send({ kind: 'verdicts', verdicts } satisfies HolderMessage)
}

on('settle', () => void settle())
untilFinished(() => store.close())
const fences = Object.fromEntries(claimed.map(({ id, fence }) => [id, fence]))
send({ kind: 'claimed', fences } satisfies HolderMessage)
